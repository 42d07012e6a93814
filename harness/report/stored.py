"""verdicts.json of a run and report.json of a session: written for machines, read back for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.checks.base import Verdict
from harness.checks.cause import Cause
from harness.errors import RecordError
from harness.expect import Judgement
from harness.wire import VERDICTS_JSON, Event


@dataclass(frozen=True)
class StoredJudgement:
    """What verdicts.json says.

    Attributes:
        outcome: ``passed``, ``failed`` or ``unknown``.
        verdicts: one for each guarantee, in the order they were judged.
        blamed: names of the guarantees that kept the run from passing, the most telling first.
        problems: what was wrong beside the guarantees.
        diagnosis: the first cause of each failed launch.
        doubt: why the fault-free run is nothing to compare with, if so; of a run that passed, only where that matters.
    """

    outcome: str
    headline: str
    verdicts: tuple[Verdict, ...]
    blamed: tuple[str, ...]
    problems: tuple[str, ...]
    diagnosis: tuple[Cause, ...] = ()
    doubt: str = ""


def write_verdicts(judgement: Judgement, run_dir: Path) -> Path:
    """Write verdicts.json into ``run_dir`` in one step; returns its path.

    Raises:
        RecordError: the directory cannot be written.
    """
    content = {
        "outcome": judgement.outcome,
        "headline": judgement.headline,
        "blamed": [verdict.guarantee for verdict in judgement.blamed],
        "problems": list(judgement.problems),
        "diagnosis": [asdict(cause) for cause in judgement.diagnosis],
        **({"doubt": judgement.doubt, "baseline_dir": judgement.baseline_dir} if judgement.doubt else {}),
        "verdicts": [verdict.to_json() for verdict in judgement.verdicts],
    }
    return _write(run_dir / VERDICTS_JSON, content)


def load_verdicts(run_dir: Path) -> StoredJudgement:
    """Read verdicts.json.

    Raises:
        RecordError: it is missing or damaged.
    """
    path = run_dir / VERDICTS_JSON
    try:
        raw = json.loads(path.read_text())
        verdicts = tuple(Verdict(**verdict) for verdict in raw["verdicts"])
        blamed, problems = tuple(raw["blamed"]), tuple(raw["problems"])
        diagnosis = tuple(_cause(cause) for cause in raw.get("diagnosis", ()))
        doubt = str(raw.get("doubt", ""))
        return StoredJudgement(raw["outcome"], raw["headline"], verdicts, blamed, problems, diagnosis, doubt)
    except (OSError, ValueError, TypeError, KeyError) as error:
        cure = f"judge the run again: python -m harness recheck {run_dir}"
        raise RecordError(f"{path}: no readable verdicts ({error}); {cure}") from error


def _cause(raw: dict[str, Any]) -> Cause:
    event = None if raw["event"] is None else Event(**raw["event"])
    return Cause(**raw | {"event": event, "ranks": tuple(raw.get("ranks", ()))})


def write_report(path: Path, about: dict[str, Any], results: Sequence[dict[str, Any]]) -> Path:
    """Write a session's report.json: ``about`` (seed, commit, ...) and one entry for each test; returns its path.

    Raises:
        RecordError: the directory cannot be written.
    """
    return _write(path, {**about, "results": list(results)})


def _write(path: Path, content: dict[str, Any]) -> Path:
    half = path.with_name(f"{path.name}.tmp")
    try:
        half.write_text(json.dumps(content, indent=1, default=str) + "\n")
        half.replace(path)  # a reader never sees half a file
    except OSError as error:
        raise RecordError(
            f"{path}: cannot be written ({error.strerror}); free some space or mend its rights"
        ) from error
    return path
