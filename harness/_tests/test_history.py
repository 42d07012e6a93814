"""Run directories that were damaged: what can be read is read, the rest is named, and nothing ends in a traceback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness._tests.histories import baseline, run
from harness.baseline import load_baseline, write_baseline
from harness.errors import RecordError
from harness.history import load_history
from harness.plan import write_plan
from harness.run import recheck

RECORD = "rank-1/events-1.jsonl"
SOUND = {"exit_code": 0, "timed_out": False, "started_ns": 0, "ended_ns": 10, "leftovers": [], "agent_exits": []}


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run of two ranks and one restart, with its outcome and baseline."""
    story = run(expect="recovers", max_restarts=1).start().updates(1, 2).start().updates(1, 12).leave()
    history = story.history()
    write_plan(history.plan, tmp_path)
    (tmp_path / "outcome.json").write_text(json.dumps(SOUND))
    write_baseline(baseline(), tmp_path)
    for rank in (0, 1):
        (tmp_path / f"rank-{rank}").mkdir()
    for event in history.events:
        place = {"t": event.t_ns, "kind": event.kind, "step": event.step, "phase": event.phase}
        with (tmp_path / f"rank-{event.rank}" / f"events-{event.restart}.jsonl").open("a") as file:
            file.write(json.dumps({**place, **event.data}) + "\n")
    (tmp_path / "rank-1" / "stacks-0.txt").write_text("stacks")
    return tmp_path


def test_a_sound_directory_has_nothing_damaged(run_dir: Path) -> None:
    history = load_history(run_dir)
    assert history.damaged == ()
    assert history.restarts == 1
    assert history.stacks == {(1, 0): "stacks"}
    assert history.events == tuple(sorted(history.events, key=lambda e: e.t_ns))


LINES: dict[str, tuple[bytes, str]] = {
    "a list": (b"[1,2]", "an event is an object, not list"),
    "null": (b"null", "an event is an object, not NoneType"),
    "a time in words": (
        b'{"t":"x","kind":"phase","step":1,"phase":"init"}',
        't of this event is "x"; it must be a whole number',
    ),
    "no time": (
        b'{"t":null,"kind":"phase","step":1,"phase":"init"}',
        "t of this event is null; it must be a whole number",
    ),
    "a kind that is a list": (
        b'{"t":1,"kind":[1],"step":1,"phase":"init"}',
        "kind of this event is [1]; it must be text",
    ),
    "a step in words": (
        b'{"t":1,"kind":"phase","step":"1","phase":"init"}',
        'step of this event is "1"; it must be a whole number',
    ),
    "a step that is true": (
        b'{"t":1,"kind":"phase","step":true,"phase":"init"}',
        "step of this event is true; it must be a whole number",
    ),
    "a phase that is a number": (
        b'{"t":1,"kind":"phase","step":1,"phase":2}',
        "phase of this event is 2; it must be text",
    ),
    "no kind": (b'{"t":1,"step":1,"phase":"init"}', "this event has no kind; it must be there: text"),
    "brackets without end": (b"[" * 200_000, "recursion"),
    "no UTF-8": (b"\xff\xfe\x80", "codec"),
    "half a line": (b'{"t":1,"ki', "Unterminated string"),
    "a number of too many digits": (b'{"t":' + b"1" * 5000 + b"}", "4300 digits"),
}


@pytest.mark.parametrize("name", LINES)
def test_a_damaged_line_is_named_and_the_others_are_read(run_dir: Path, name: str) -> None:
    line, words = LINES[name]
    before = load_history(run_dir)
    count = len(before.of(rank=1, restart=1))
    with (run_dir / RECORD).open("ab") as file:
        file.write(line + b"\n")
    history = load_history(run_dir)
    assert history.events == before.events
    (damaged,) = history.damaged
    assert damaged.startswith(f"{RECORD}:{count + 1}: ")
    assert words in damaged
    assert recheck(run_dir).outcome != "passed"


def test_a_record_that_is_a_directory_is_damaged(run_dir: Path) -> None:
    (run_dir / RECORD).unlink()
    (run_dir / RECORD).mkdir()
    assert load_history(run_dir).damaged[0] == f"{RECORD}: cannot be read: Is a directory"
    assert recheck(run_dir).outcome != "passed"


STRAY: dict[str, Callable[[Path], object]] = {
    "a copy of a record": lambda d: shutil.copy(d / RECORD, d / "rank-1" / "events-1 (copy).jsonl"),
    "a copy of a rank": lambda d: shutil.copytree(d / "rank-1", d / "rank-1.bak"),
    "a rank of another spelling": lambda d: shutil.copytree(d / "rank-1", d / "rank-01"),
    "a rank below zero": lambda d: shutil.copytree(d / "rank-1", d / "rank--1"),
    "stacks that are a directory": lambda d: (d / "rank-0" / "stacks-0.txt").mkdir(),
    "a copy of the stacks": lambda d: shutil.copy(d / "rank-1" / "stacks-0.txt", d / "rank-1" / "stacks-0~.txt"),
}


@pytest.mark.parametrize("stray", STRAY.values(), ids=STRAY)
def test_what_is_no_record_is_left_out(run_dir: Path, stray: Callable[[Path], object]) -> None:
    before = load_history(run_dir)
    stray(run_dir)
    after = load_history(run_dir)
    assert (after.events, after.stacks, after.damaged) == (before.events, before.stacks, ())


def edited(**changes: Any) -> Callable[[str], str]:
    return lambda text: json.dumps(json.loads(text) | changes)


FILES: dict[str, tuple[str, Callable[[str], str], str]] = {
    "a plan that is null": ("plan.json", lambda _: "null", "no readable plan"),
    "a plan that is a list": ("plan.json", lambda _: "[]", "no readable plan"),
    "a plan too deep": ("plan.json", lambda _: "[" * 200_000, "no readable plan"),
    "a plan with ranks in words": ("plan.json", edited(ranks="2"), "ranks must be a whole number, not '2'"),
    "a plan with an unknown outcome": (
        "plan.json",
        edited(expect={"outcome": "foo", "broken": []}),
        "unknown expect.outcome 'foo'; allowed: clean",
    ),
    "a plan with an unknown guarantee": ("plan.json", edited(guarantees=["Nope"]), "unknown guarantee 'Nope'"),
    "a plan with an unknown broken guarantee": (
        "plan.json",
        edited(expect={"outcome": "detected", "broken": [{"guarantee": "Nope"}]}),
        "unknown guarantee 'Nope'",
    ),
    "an outcome that is null": ("outcome.json", lambda _: "null", "no readable outcome"),
    "an outcome that is a list": ("outcome.json", lambda _: "[]", "no readable outcome"),
    "an outcome too deep": ("outcome.json", lambda _: "[" * 200_000, "no readable outcome"),
    "an outcome with a code in words": ("outcome.json", edited(exit_code="0"), "no whole number"),
    "an outcome with an end found at a time in words": (
        "outcome.json",
        edited(agent_exits=[{"pid": 9, "local_rank": 1, "exit_code": -6, "order": 0, "t_ns": "3"}]),
        "no whole number",
    ),
    "an outcome with a leftover that is a number": ("outcome.json", edited(leftovers=[1]), "a leftover no string"),
    "a baseline that is null": ("baseline.json", lambda _: "null", "no readable baseline"),
    "a baseline whose updates are a list": ("baseline.json", edited(updates=[]), "no readable baseline"),
    "a baseline too deep": ("baseline.json", lambda _: "[" * 200_000, "no readable baseline"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_a_record_error_that_says_what(run_dir: Path, name: str) -> None:
    file, damage, words = FILES[name]
    (run_dir / file).write_text(damage((run_dir / file).read_text()))
    with pytest.raises(RecordError, match=words) as raised:
        recheck(run_dir)
    assert str(run_dir / file) in str(raised.value)


def test_a_sound_baseline_comes_back(run_dir: Path) -> None:
    assert load_baseline(run_dir) == baseline()
