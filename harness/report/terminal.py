"""A judgement as the text that a person reads first: what is wrong, where to look, what to type."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from harness.checks.base import Verdict
from harness.checks.cause import Cause
from harness.checks.records import listed
from harness.expect import Judgement
from harness.wire import output_path

WIDTH = 100
MAX_BLAMED = 3  # further ones are consequences more often than news; verdicts.json has them all
MAX_VALUE_CHARS = 300
MAX_LAST_LINES = 3  # of what a script wrote to stderr before it left
_INDENT = 11
_WORDS = {"invalid": "is broken", "unknown": "is unknown", "not-applicable": "has nothing to judge", "valid": "holds"}


def judgement_text(
    judgement: Judgement, run_dir: Path, *, title: str = "", replay: str = "", page: Path | None = None
) -> str:
    """The panel of one run, at most 100 columns wide but for paths and commands, which are there to be copied.

    The headline first, under UNKNOWN where nothing is proven, and what a script wrote last that left with an exit code.
    For each promise that does not hold: the promise, the
    place, the values and the file to open. Then what is wrong beside the promises, the causes of failed launches, and
    the commands.

    Args:
        run_dir: as the reader will type it; it is only printed.
        replay: the command that runs the same plan again, if there is one.
        page: the HTML page that shows it, if there is one.
    """
    shown, others = judgement.blamed[:MAX_BLAMED], judgement.blamed[MAX_BLAMED:]
    heading = "UNKNOWN: " if judgement.outcome == "unknown" else ""
    lines = textwrap.wrap(heading + judgement.headline, WIDTH)
    # Why a script leaves with an exit code only itself can say; of its arguments, say, and then nothing else counts.
    left = [cause for cause in judgement.diagnosis if cause.how == "exit" and cause.exit_code and cause.named]
    for cause in left[:1]:
        lines += _last_words(cause, run_dir)
    lines += _field("title", title)
    for verdict in shown:
        if judgement.headline.startswith(f"{verdict.guarantee} "):  # the headline has told its reason
            lines += _details(verdict, run_dir)
        else:
            lines += ["", *_statement(verdict), *_details(verdict, run_dir)]
    lines.append("")
    lines += _field("also", ", ".join(f"{verdict.guarantee} ({verdict.outcome})" for verdict in others))
    for problem in judgement.problems:
        if problem != judgement.headline:
            lines += _field("problem", problem)
    for cause in judgement.diagnosis:
        lines += _field("cause", cause_text(cause))
        if cause in left[1:]:
            lines += _last_words(cause, run_dir)
    if judgement.doubt not in judgement.headline:
        lines += _field("doubt", judgement.doubt)
    lines += _uncut("baseline", judgement.baseline_dir)
    lines += _uncut("page", str(page) if page else "")
    lines += _uncut("run", str(run_dir))
    lines += _uncut("replay", replay)
    lines += _uncut("recheck", f"python -m harness recheck {shlex.quote(str(run_dir))}")
    return "\n".join(lines)


def verdict_table(judgement: Judgement) -> str:
    """Every guarantee with its verdict, one a line; the reason beside those that were not found to hold."""
    width = max((len(verdict.guarantee) for verdict in judgement.verdicts), default=0)
    rows: list[str] = []
    for verdict in judgement.verdicts:
        label = f"  {verdict.guarantee:<{width}}  {verdict.outcome:<14}  "
        rows += [label.rstrip()] if verdict.outcome == "valid" else _wrapped(label, verdict.reason)
    return "\n".join(rows)


def place(verdict: Verdict) -> str:
    """Where a promise was broken: ``rank 1, step 12, all_reduce, restart 1``; empty if nothing is known."""
    parts = (
        ("rank {}", verdict.rank),
        ("step {}", verdict.step),
        ("{}", verdict.operation),
        ("restart {}", verdict.restart),
    )
    return ", ".join(form.format(value) for form, value in parts if value is not None)


def cause_text(cause: Cause) -> str:
    """Which launch failed, by which ranks, of what, and where that stands."""
    where = [f"launch {cause.restart}", *([listed(cause.named)] if cause.named else [])]
    source = f" ({cause.event.where})" if cause.event else ""
    return f"{', '.join(where)}: {cause.detail}{source}"


def _last_words(cause: Cause, run_dir: Path) -> list[str]:
    """What the first rank that it names wrote to stderr, and the last lines of it; nothing if it wrote nothing."""
    path = output_path(run_dir, cause.named[0], cause.restart, "stderr")
    try:
        said = [line[-MAX_VALUE_CHARS:] for line in path.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return []
    return [*_uncut("stderr", str(path)), *_field("", "\n".join(said[-MAX_LAST_LINES:]))] if said else []


def _statement(verdict: Verdict) -> list[str]:
    return textwrap.wrap(
        f"{verdict.guarantee} {_WORDS[verdict.outcome]}: {verdict.reason}", WIDTH, subsequent_indent="  "
    )


def _details(verdict: Verdict, run_dir: Path) -> Iterator[str]:
    yield from _field("promise", verdict.promise)
    yield from _field("where", place(verdict))
    yield from _field("seen", "\n".join(f"{name} = {_value(value)}" for name, value in verdict.seen.items()))
    if verdict.file:
        yield from _uncut("open", str(run_dir / verdict.file))


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}... ({len(text)} characters)"


def _label(name: str) -> str:
    return f"  {name}".ljust(_INDENT)


def _field(name: str, text: str) -> list[str]:
    return _wrapped(_label(name), text) if text else []


def _uncut(name: str, text: str) -> list[str]:
    return [f"{_label(name)}{text}"] if text else []


def _wrapped(label: str, text: str) -> list[str]:
    paragraphs = (textwrap.wrap(part, WIDTH - len(label)) for part in text.splitlines())
    lines = chain.from_iterable(paragraphs)
    return [f"{' ' * len(label) if index else label}{line}" for index, line in enumerate(lines)] or [label.rstrip()]
