"""A session's runs, read from its directory: what each came to, what was tried, how long it took."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from harness.errors import RecordError
from harness.faults import KINDS
from harness.history import History, load_history
from harness.kept_runs import REPORT_JSON
from harness.plan import Plan, load_plan
from harness.report.measured import Measured, measure
from harness.report.replay import replay_command
from harness.report.stored import StoredJudgement, load_verdicts
from harness.report.timeline import make_timeline
from harness.wire import PHASES, PLAN_JSON, Kind

Result = Literal["failed", "unknown", "error", "skipped", "passed"]
RESULTS: tuple[Result, ...] = ("failed", "error", "unknown", "passed", "skipped")  # the most urgent first
NO_PHASE = "not fired"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run, or one test that came to none.

    Attributes:
        directory: of the run, relative to the session's; empty if the test came to no run.
        faults: (kind, phase in which it fired) of each fault of the plan.
    """

    name: str
    result: Result
    headline: str
    title: str = ""
    workload: str = ""
    directory: str = ""
    duration_s: float | None = None
    faults: tuple[tuple[str, str], ...] = ()
    measured: Measured | None = None
    replay: str = ""


@dataclass(frozen=True, kw_only=True)
class Session:
    """See the module's docstring; ``runs`` the most urgent first, ``about`` as report.json has it."""

    runs: tuple[Run, ...]
    about: dict[str, Any] = field(default_factory=dict)

    def count(self, result: Result) -> int:
        return sum(run.result == result for run in self.runs)


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How often each kind of fault was tried in each phase, on one workload.

    Attributes:
        cells: kind -> phase -> result -> number of runs.
    """

    workload: str
    phases: tuple[str, ...]
    cells: dict[str, dict[str, dict[Result, int]]]


def load_session(session_dir: Path) -> Session:
    """The session in ``session_dir``: its run directories, and what report.json says beside them.

    Raises:
        RecordError: there is neither a run nor a report.json in it.
    """
    report = _report(session_dir)
    told = {Path(str(entry["run_dir"])).name: entry for entry in report["results"] if entry.get("run_dir")}
    runs = [
        load_run(path.parent, told.get(path.parent.name, {})) for path in sorted(session_dir.glob(f"*/{PLAN_JSON}"))
    ]
    here = {run.directory for run in runs}
    runs += [_without_run(entry) for entry in report["results"] if Path(str(entry.get("run_dir", ""))).name not in here]
    if not runs and not report["about"]:
        raise RecordError(
            f"{session_dir}: neither a run directory nor one of a session: no {PLAN_JSON} is in or below it"
        )
    runs.sort(key=lambda run: (RESULTS.index(run.result), run.name))
    return Session(runs=tuple(runs), about=report["about"])


def load_run(run_dir: Path, told: dict[str, Any]) -> Run:
    """One run; what cannot be read of it is said in its headline.

    Args:
        told: its entry in report.json, if it has one.
    """
    name = _name(told) or run_dir.name
    try:
        plan = load_plan(run_dir)
        judged = load_verdicts(run_dir)
        history = load_history(run_dir)
    except RecordError as error:
        said = _told_result(told)
        return Run(name=name, result=said, headline=str(told.get("headline") or error), directory=run_dir.name)
    result: Result = next((result for result in RESULTS if result == judged.outcome), "unknown")
    return Run(
        name=name,
        result=result,
        headline=judged.headline,
        title=plan.title,
        workload=plan.workload if plan.workload and not Path(plan.workload).is_absolute() else Path(plan.script).name,
        directory=run_dir.name,
        duration_s=history.outcome.duration_s,
        faults=tuple(_faults(plan, history)),
        measured=measure(history, make_timeline(history, StoredJudgement(result, "", (), (), ()))),
        replay=replay_command(plan),
    )


def coverage(runs: Sequence[Run]) -> list[Coverage]:
    """One table for each workload, the most tried first; phases in the order of a step."""
    tables: dict[str, dict[str, dict[str, dict[Result, int]]]] = {}
    for run in runs:
        for kind, phase in dict.fromkeys(run.faults):
            cell = tables.setdefault(run.workload, {}).setdefault(kind, {}).setdefault(phase, {})
            cell[run.result] = cell.get(run.result, 0) + 1
    order = [*PHASES, NO_PHASE]
    found = [
        Coverage(
            workload=workload,
            phases=tuple(sorted({phase for row in cells.values() for phase in row}, key=order.index)),
            cells=dict(sorted(cells.items())),
        )
        for workload, cells in tables.items()
    ]
    return sorted(found, key=lambda table: (-_num_tried(table), table.workload))


def never_tried(runs: Iterable[Run]) -> list[str]:
    """The kinds of fault that no run of the session planned."""
    tried = {kind for run in runs for kind, _ in run.faults}
    return [kind for kind in KINDS if kind not in tried]


def times_by_kind(runs: Iterable[Run]) -> dict[str, dict[str, list[float]]]:
    """Kind of fault -> ``detection`` and ``recovery`` -> seconds, of the runs with exactly one kind."""
    found: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        kinds = {kind for kind, _ in run.faults}
        if len(kinds) != 1 or run.measured is None:
            continue
        row = found.setdefault(kinds.pop(), {"detection": [], "recovery": []})
        for name, seconds in (("detection", run.measured.detection_s), ("recovery", run.measured.recovery_s)):
            if seconds is not None and seconds > 0:
                row[name].append(seconds)
    return {kind: row for kind, row in sorted(found.items()) if row["detection"] or row["recovery"]}


def median_of(runs: Iterable[Run], name: Literal["save_s", "restart_s"]) -> float | None:
    """The median of one measured time over all runs that have it."""
    values = [value for run in runs if run.measured and (value := getattr(run.measured, name)) is not None]
    return statistics.median(values) if values else None


def _num_tried(table: Coverage) -> int:
    return sum(sum(cell.values()) for row in table.cells.values() for cell in row.values())


def _faults(plan: Plan, history: History) -> Iterator[tuple[str, str]]:
    fired = {event.data.get("index"): event.phase for event in reversed(history.of(Kind.FAULT))}
    for index, fault in enumerate(plan.faults):
        phase = fired.get(index, NO_PHASE)
        yield fault.kind, phase if phase in PHASES else NO_PHASE


def _report(session_dir: Path) -> dict[str, Any]:
    """What report.json says; a session that was broken off has none, and a damaged one says nothing."""
    try:
        raw = json.loads((session_dir / REPORT_JSON).read_text())
        results = [entry for entry in raw.pop("results") if isinstance(entry, dict)]
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {"about": {}, "results": []}
    return {"about": raw, "results": results}


def _without_run(entry: dict[str, Any]) -> Run:
    duration_s = entry.get("duration_s")
    return Run(
        name=_name(entry) or str(entry.get("test")),
        result=_told_result(entry),
        headline=str(entry.get("headline") or "no run is kept of it"),
        duration_s=duration_s if isinstance(duration_s, int | float) else None,
    )


def _name(entry: dict[str, Any]) -> str:
    """pytest's name of the test; empty where that names no file, as for one outside of pytest's root directory."""
    name = str(entry.get("test", ""))
    return "" if name.startswith("::") else name


def _told_result(entry: dict[str, Any]) -> Result:
    """pytest calls failed what this project calls unknown."""
    said = "unknown" if entry.get("outcome") == "unknown" else entry.get("result")
    return next((result for result in RESULTS if result == said), "error")
