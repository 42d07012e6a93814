"""The fault-free twin of a plan: what the job would have come to, had nothing happened.

A baseline is run twice when it is made: a script that does not repeat itself byte for byte is found out here, not
blamed on recovery. It is kept by content (script, everything it imports that is no installed package, arguments,
ranks, versions), and run again on every ``RECHECK_EVERY``-th use, so that a script that repeats itself only mostly is
found out as well.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from filelock import FileLock

from harness.checks import check_all
from harness.checks.diagnosis import diagnose
from harness.checks.records import listed
from harness.effects import effects_from_json, in_common
from harness.errors import RecordError
from harness.event_files import UNREADABLE
from harness.history import Baseline, History, load_history
from harness.plan import Effect, Expect, Plan, write_plan
from harness.wire import BASELINE_JSON, GENERATORS, Event, Kind

RECHECK_EVERY = 50
FORMAT = 15  # of what is kept; raise it with every change of what a baseline holds
_DIGESTS = ("params", "optimizer", "buffers")

Launch = Callable[[Plan, Path], None]


@dataclass(frozen=True)
class BaselineCache:
    """Baselines on disk, shared by every process that uses the same ``root``."""

    root: Path

    def get(self, plan: Plan, launch: Launch, *, fresh: bool = False) -> Baseline:
        """The baseline of ``plan``; made now if there is none, or if what it was made of has changed.

        Args:
            launch: runs a plan in a run directory.
            fresh: make it anew in any case.

        Raises:
            LaunchError: the ranks could not be started.
        """
        twin = make_twin(plan)
        place = self.root / _key(twin)
        place.mkdir(parents=True, exist_ok=True)
        with FileLock(place / "lock"):
            kept = None if fresh else _load_kept(place)
            if kept is None:
                return self._make(twin, place, launch)
            baseline, uses, sources = kept
            if uses % RECHECK_EVERY == 0:
                again = make_baseline(_run(twin, place / "run-again", launch))
                baseline = compared(baseline, again, twin.effects)
                baseline = replace(baseline, run_dir=str(place / "run-again")) if baseline.reason else baseline
            _write_kept(place, baseline, uses + 1, sources)
            return baseline

    def _make(self, twin: Plan, place: Path, launch: Launch) -> Baseline:
        first = _run(twin, place / "run-1", launch)
        baseline = make_baseline(first)
        at = "run-1"
        if not baseline.reason:
            second = make_baseline(_run(twin, place / "run-2", launch))
            baseline = compared(baseline, second, twin.effects)
            at = "run-2"
        if baseline.reason:
            baseline = replace(baseline, run_dir=str(place / at))
        else:
            verdicts = check_all(first, baseline)
            broken = tuple(v.guarantee for v in verdicts if v.outcome == "invalid")
            baseline = replace(baseline, broken=broken, run_dir=str(place / "run-1") if broken else "")
        _write_kept(place, baseline, 1, _sources(first))
        return baseline


def make_twin(plan: Plan) -> Plan:
    """The same job without faults, restarts and expectations, from nothing."""
    return replace(
        plan,
        name="baseline",
        title="",
        scenario_file=None,
        faults=(),
        num_planned_faults=0,
        disarmed=False,
        max_restarts=0,
        start_from=None,
        acknowledged=None,
        gradient=None,
        metric=None,
        expect=Expect(outcome="clean"),
        guarantees=(),
    )


def make_baseline(history: History) -> Baseline:
    """What a finished fault-free run has to compare with; ``reason`` says why there is nothing, if so."""
    finals: dict[int, Mapping[str, str]] = {}
    updates: dict[int, dict[int, Mapping[str, str]]] = {}
    sample_ids: dict[int, dict[int, list[int] | None]] = {}
    collectives: dict[int, dict[int, dict[str, list[list[Any]]]]] = {}
    magnitudes: tuple[tuple[str, int, float, float], ...] = ()
    starts: dict[int, Mapping[str, str]] = {}
    reason = ""
    for rank in history.ranks:
        ends = history.of(Kind.EXIT, rank=rank, restart=0)
        if history.outcome.exit_code != 0 or not ends:
            reason = f"the run without faults did not end well: {_end(history)}"
            break
        if rank == 0:
            magnitudes = tuple((n, numel, total, norm) for n, numel, total, norm in ends[-1].data.get("magnitudes", ()))
        finals[rank] = {name: ends[-1].data[name] for name in _DIGESTS if ends[-1].data.get(name)}
        if (started := next(iter(history.of(Kind.STATE, rank=rank, restart=0)), None)) is not None:
            starts[rank] = _state(started)
        steps = history.of(Kind.UPDATE, rank=rank, restart=0)
        updates[rank] = {event.step: _digests(event) for event in steps}
        sample_ids[rank] = {event.step: event.data["ids"] for event in steps}
        for event in history.of(Kind.COLLECTIVE, rank=rank, restart=0):
            if event.data.get("aside"):
                continue  # its step and phase are chance
            phases = collectives.setdefault(rank, {}).setdefault(event.step, {})
            what = [event.data[name] for name in ("op", "reduce_op", "numel", "dtype")]
            phases.setdefault(event.phase, []).append(what)
    return Baseline(
        repeatable=None,
        final=finals.get(0, {}),
        finals=finals,
        updates=updates,
        sample_ids=sample_ids,
        collectives=collectives,
        magnitudes=magnitudes,
        starts=starts,
        epochs={event.step: event.data["epoch"] for event in history.of(Kind.UPDATE, rank=0, restart=0)},
        phases=_phases(history),
        saves={rank: _steps(history.of(Kind.SAVE_START, rank=rank, restart=0)) for rank in finals},
        foreign_saves={rank: _steps(history.of(Kind.FOREIGN_SAVE, rank=rank, restart=0)) for rank in finals},
        effects=history.effects,
        reason=reason,
    )


def _phases(history: History) -> dict[str, list[int]]:
    """Of each phase the steps in which every rank entered it."""
    entered: dict[str, list[set[int]]] = {}
    for rank in history.ranks:
        for event in history.of(Kind.PHASE, rank=rank, restart=0):
            entered.setdefault(event.phase, [set() for _ in history.ranks])[rank].add(event.step)
    return {phase: sorted(set.intersection(*steps)) for phase, steps in entered.items()}


def _steps(events: Sequence[Event]) -> list[int]:
    return sorted({event.step for event in events})


def _end(history: History) -> str:
    """How it ended, and what is known of the first cause: rank, exception, the line to open."""
    outcome = history.outcome
    said = f"exit code {outcome.exit_code}"
    if outcome.timed_out:
        said = f"it had to be ended after {history.plan.deadline_s:g} s"
    cause = next(iter(diagnose(history)), None)
    if cause is None:
        return said
    named = listed(cause.named)
    who = "" if not cause.named or cause.detail.startswith(named) else f"{named}: "
    return f"{said}; {who}{cause.detail}" + (f" ({cause.event.where})" if cause.event is not None else "")


def write_baseline(baseline: Baseline, run_dir: Path) -> None:
    """Keep it in the run directory, so that the run can be judged again anywhere."""
    (run_dir / BASELINE_JSON).write_text(json.dumps(asdict(baseline)) + "\n")


def load_baseline(run_dir: Path) -> Baseline | None:
    """The baseline that was kept in ``run_dir``, None if there is none.

    Raises:
        RecordError: the file is damaged.
    """
    path = run_dir / BASELINE_JSON
    if not path.exists():
        return None
    try:
        return _from_json(json.loads(path.read_text()))
    except UNREADABLE as error:
        raise RecordError(f"{path}: no readable baseline ({error}); run the scenario again") from error


def _state(event: Event) -> dict[str, str]:
    return {name: event.data[name] for name in _DIGESTS}


def _digests(event: Event) -> dict[str, str]:
    generators = {part: digest for part in GENERATORS if (digest := event.data.get(part)) is not None}
    return _state(event) | generators | {name: str(event.data.get(name)) for name in ("scaler", "lr")}


def _run(twin: Plan, run_dir: Path, launch: Launch) -> History:
    shutil.rmtree(run_dir, ignore_errors=True)
    run_dir.mkdir()
    write_plan(twin, run_dir)
    launch(twin, run_dir)
    return load_history(run_dir)


def compared(one: Baseline, other: Baseline, effects: Sequence[Effect] = ()) -> Baseline:
    """``one``, marked as repeatable or not by what ``other``, a second run of the same plan, gave.

    A random generator that a script never seeds differs from run to run, and may be without effect. So may one from
    which not every update draws. Their digests are left out of the result, so that nobody takes them for a promise.
    So are columns of side effects that differ, and what an optimizer keeps, if that alone differs and nothing comes of
    it: the time that a step took, say.
    """
    if other.reason:
        reason = f"of two runs without faults the second differs: {other.reason}"
        return replace(one, repeatable=False, reason=reason, updates=_without(one, *GENERATORS))
    alike = [in_common(*places) for places in zip(effects, one.effects, other.effects, strict=False)]
    updates = _without(one, *(part for part in GENERATORS if not _is_drawn_alike(part, one, other)))
    one = replace(one, effects=tuple(alike), updates=updates)
    different = _difference(one, other)
    if different and _difference(*(shorter := (_without_optimizer(one), _without_optimizer(other)))) is None:
        (one, other), different = shorter, None
    if different:
        return replace(one, repeatable=False, reason=f"two runs without faults differ in {different}")
    collectives = one.collectives if one.collectives == other.collectives else {}  # they may depend on the time
    return replace(one, repeatable=True, collectives=collectives)


def _difference(one: Baseline, other: Baseline) -> str | None:
    """The first that is not equal in both, in words; None if nothing is."""
    ours, theirs = _without(one, *GENERATORS), _without(other, *GENERATORS)
    for rank, steps in sorted(ours.items()):
        for step, digests in sorted(steps.items()):
            if one.sample_ids[rank][step] != other.sample_ids.get(rank, {}).get(step):
                return f"the samples of update {step} on rank {rank}"
            for name, digest in digests.items():
                if theirs.get(rank, {}).get(step, {}).get(name) != digest:
                    return f"{name} after update {step} on rank {rank}"
    return None if (ours, one.final) == (theirs, other.final) else "their number of updates or their final state"


def _is_drawn_alike(generator: str, one: Baseline, other: Baseline) -> bool:
    """Whether its states were the same in both, and on some rank each update drew from it.

    What is drawn now and then need not come to anything: a DataLoader draws a seed for its workers at the begin of each
    pass, also if it has none, and most scripts that resume well do not restore that.
    """

    def states(baseline: Baseline) -> dict[int, list[str | None]]:
        return {rank: [each.get(generator) for each in steps.values()] for rank, steps in baseline.updates.items()}

    return states(one) == states(other) and any(
        _changes_within_passes([(one.epochs.get(step), each.get(generator)) for step, each in sorted(steps.items())])
        for steps in one.updates.values()
    )


def _changes_within_passes(states: Sequence[tuple[int | None, str | None]]) -> bool:
    """Of the pass of each update and the state after it."""
    within = [now != then for (epoch, then), (same, now) in pairwise(states) if epoch == same]
    return bool(within) and all(within)


def _without(baseline: Baseline, *parts: str) -> dict[int, dict[int, Mapping[str, str]]]:
    """Its updates."""
    return {
        rank: {step: _but_for(parts, digests) for step, digests in steps.items()}
        for rank, steps in baseline.updates.items()
    }


def _but_for(parts: Sequence[str], digests: Mapping[str, str]) -> dict[str, str]:
    return {name: digest for name, digest in digests.items() if name not in parts}


def _without_optimizer(baseline: Baseline) -> Baseline:
    final, *finals = (
        {name: digest for name, digest in each.items() if name != "optimizer"}
        for each in (baseline.final, *baseline.finals.values())
    )
    finals_of_ranks = dict(zip(baseline.finals, finals, strict=True))
    return replace(baseline, updates=_without(baseline, "optimizer"), final=final, finals=finals_of_ranks)


def _key(twin: Plan) -> str:
    content = twin.to_json()
    content.pop("launcher")  # warm and cold runs give the same digests; the parity test shows it
    content.pop("made_with")
    content["versions"] = {k: v for k, v in twin.made_with.items() if k in ("python", "torch", "harness")}
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:24]


def _sources(history: History) -> dict[str, str]:
    """Path -> sha256 of every source file that the ranks' interpreters had loaded, installed packages aside."""
    paths = {history.plan.script}
    for end in history.of(Kind.EXIT):
        paths.update(end.data.get("sources", ()))
    return {path: digest for path in sorted(paths) if (digest := _sha256(path)) is not None}


def _sha256(path: str) -> str | None:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return None


def _load_kept(place: Path) -> tuple[Baseline, int, dict[str, str]] | None:
    try:
        raw: dict[str, Any] = json.loads((place / BASELINE_JSON).read_text())
        if raw["format"] != FORMAT:
            return None
        sources: dict[str, str] = raw["sources"]
        baseline = _from_json(raw["baseline"])
        if any(_sha256(path) != digest for path, digest in sources.items()):
            return None
        # One that failed or did not repeat itself gets another chance each time: the machine may have been the cause.
        return (baseline, raw["uses"], sources) if baseline.repeatable else None
    except UNREADABLE:
        return None  # absent, damaged, or of an older version: it is made anew


def _write_kept(place: Path, baseline: Baseline, uses: int, sources: dict[str, str]) -> None:
    temporary = place / f".{BASELINE_JSON}.tmp"
    temporary.write_text(
        json.dumps({"format": FORMAT, "baseline": asdict(baseline), "uses": uses, "sources": sources}) + "\n"
    )
    temporary.replace(place / BASELINE_JSON)


def _from_json(raw: dict[str, Any]) -> Baseline:
    """JSON has no integer keys; ranks and steps are integers here."""
    for name in ("updates", "sample_ids", "collectives"):
        raw[name] = {
            int(rank): {int(step): value for step, value in steps.items()} for rank, steps in raw[name].items()
        }
    for name in ("starts", "finals", "epochs", "saves", "foreign_saves"):
        raw[name] = {int(number): value for number, value in raw.get(name, {}).items()}
    raw["effects"] = effects_from_json(raw.get("effects", ()))
    raw["broken"] = tuple(raw.get("broken", ()))
    raw["magnitudes"] = tuple(tuple(values) for values in raw["magnitudes"])
    return Baseline(**raw)
