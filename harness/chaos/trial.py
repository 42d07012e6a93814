"""One plan run and judged, in a worker process; what comes of it is small and can be sent."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from multiprocessing import parent_process
from multiprocessing.connection import wait
from multiprocessing.synchronize import Event
from multiprocessing.util import Finalize
from pathlib import Path
from socket import socket
from typing import Any, Literal

from harness.chaos.draw import ANY_JOB, draw
from harness.chaos.job import Ground, JobSource, job_of
from harness.chaos.place import phase_of
from harness.checks import Verdict
from harness.errors import HarnessError
from harness.expect import Judgement
from harness.history import Baseline, load_history
from harness.launch import LAUNCHERS, Launcher
from harness.launch.warm import WarmLauncher
from harness.plan import make_plan
from harness.report.terminal import cause_text
from harness.run import Session
from harness.scenario import Scenario
from harness.wire import Kind

STATE = ("params", "optimizer", "buffers")
MAX_REASON = 48  # characters of a verdict's reason, where it does
TOLD_BY_REASON = ("FaultFired", "CulpritNamed")  # each stands for many things that can be wrong
MAX_WORDS = 120  # of a headline, where it stands for a way to fail

Outcome = Literal["passed", "failed", "unknown", "error"]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A plan that was tried.

    Attributes:
        number: of the plan; -1 for what was not drawn.
        scenario: what was run; None if none could be drawn.
        outcome: of the judgement; ``error`` if the harness itself was in trouble.
        way: in which way it did not pass, alike for runs that fail alike; empty if it passed.
        blamed: the guarantees for which it did not pass, if it was for any.
        places: (kind, phase, workload) of each fault.
        fired: the kind of each fault that is on record as fired, on one rank at least.
        causes: why its launches failed, in words.
        run_dir: kept, unless it passed.
        duration_s: with all that belongs to it.
    """

    number: int
    scenario: Scenario | None
    outcome: Outcome
    headline: str
    way: str = ""
    blamed: tuple[str, ...] = ()
    places: tuple[tuple[str, str, str], ...] = ()
    fired: tuple[str, ...] = ()
    causes: tuple[str, ...] = field(default=(), compare=False)
    run_dir: Path | None = None
    duration_s: float = 0.0
    state: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def to_json(self) -> dict[str, Any]:
        """For report.json."""
        scenario = self.scenario
        return {
            "number": self.number,
            "result": self.outcome,
            "headline": self.headline,
            "way": self.way,
            "duration_s": round(self.duration_s, 3),
            **({"run_dir": str(self.run_dir)} if self.run_dir is not None else {}),
            **(
                {
                    "workload": scenario.workload,
                    "ranks": scenario.ranks,
                    "max_restarts": scenario.max_restarts,
                    "faults": [
                        {"phase": p[1], **asdict(f)} for f, p in zip(scenario.faults, self.places, strict=False)
                    ],
                }
                if scenario is not None
                else {}
            ),
        }


# -- in a worker process -------------------------------------------------------------------------------------------

_session: Session
_is_ending: Event | None = None


def begin(store_dir: str, runs_dir: str, is_ending: Event, nursery: socket) -> None:
    """What each worker process does first.

    Args:
        is_ending: set when the night is to end early.
        nursery: the channel of the one that the workers share.
    """
    global _is_ending
    _is_ending = is_ending
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the night ends its workers, when their runs are over
    threading.Thread(target=_end_with_parent, daemon=True).start()
    open_session(Path(store_dir), Path(runs_dir), nursery)


def open_session(store_dir: Path, runs_dir: Path, nursery: socket | None = None) -> None:
    """Make what runs plans in this process; it ends with the process."""
    global _session
    launchers: dict[str, Callable[[], Launcher]] = {**LAUNCHERS, "warm": partial(WarmLauncher, nursery)}
    _session = Session(store_dir, runs_dir, launchers=launchers)
    Finalize(None, _session.__exit__, (None, None, None), exitpriority=100)  # before what multiprocessing ends


def has_time(until_s: float) -> bool:
    """Whether ``until_s`` of the monotonic clock is not reached yet, and the night not to end early."""
    return time.monotonic() < until_s and not (_is_ending is not None and _is_ending.is_set())


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)  # what runs here hears of it in the same way


class _NoGround(HarnessError):
    """A job whose run without faults is no ground to plan on."""

    def __init__(self, job: Scenario, baseline: Baseline) -> None:
        what = f"{job.workload} on {job.ranks} ranks, {job.steps} updates"
        why = baseline.reason or f"its run without faults breaks {', '.join(baseline.broken)}"
        super().__init__(f"{what}, cannot be used: {why}; the records are in {baseline.run_dir}")
        self.job = job


_grounds: dict[str, Ground] = {}


def ground_of(job: Scenario) -> Ground:
    """What a job passes without faults; run now, if no process of this store has.

    Raises:
        HarnessError: it ends badly, does not repeat itself or breaks a guarantee, so that nothing would be told by it.
    """
    key = repr(job)
    if key not in _grounds:
        baseline = _session.baseline(make_plan(job, device="cpu"))
        if baseline.reason or baseline.broken:
            raise _NoGround(job, baseline)
        _grounds[key] = Ground(job=job, baseline=baseline)
    return _grounds[key]


def try_number(seed: int, number: int, is_repeated: bool, source: JobSource = ANY_JOB) -> Trial:
    """Draw the plan of this number, and try it; twice, if ``is_repeated``, and both must come to the same.

    A job that is no ground for faults is tried without any: what is wrong with it is a finding as well.
    """
    started_s = time.monotonic()
    name = f"plan-{seed}-{number}"
    try:
        scenario = draw(seed, number, ground_of, source)
    except _NoGround as error:
        trial = try_scenario(error.job, name, number=number)
        return trial if trial.outcome != "passed" else _without_ground(number, error)
    except HarnessError as error:
        return _without_ground(number, error)
    trial = try_scenario(scenario, name, number=number, keep=is_repeated)
    if is_repeated:
        again = try_scenario(scenario, f"{name}-again", number=number, keep=True)
        trial = compared(trial, again)
    return replace(trial, duration_s=time.monotonic() - started_s)


def _without_ground(number: int, error: HarnessError) -> Trial:
    return Trial(number=number, scenario=None, outcome="error", headline=str(error), way="not drawn")


def try_scenario(scenario: Scenario, name: str, *, number: int = -1, keep: bool = False) -> Trial:
    """Run and judge it.

    Args:
        name: of the run directory.
        keep: leave the directory and read the final state, also if it passed.
    """
    started_s = time.monotonic()
    try:
        ground = ground_of(job_of(scenario))
        places = tuple((fault.kind, phase_of(fault, ground), scenario.workload) for fault in scenario.faults)
    except HarnessError:
        places = ()  # a planted workload need not repeat itself
    try:
        result = _session.run(replace(make_plan(scenario, device="cpu"), name=name))
    except HarnessError as error:
        headline = " ".join(str(error).split())[:500]
        return Trial(
            number=number, scenario=scenario, outcome="error", headline=headline, way=_alike(headline), places=places
        )
    judgement, run_dir = result.judgement, result.run_dir
    trial = Trial(
        number=number,
        scenario=scenario,
        outcome=judgement.outcome,
        headline=judgement.headline,
        way=way_of(judgement),
        blamed=tuple(verdict.guarantee for verdict in judgement.blamed),
        places=places,
        fired=_fired(scenario, judgement, run_dir),
        causes=tuple(map(cause_text, judgement.diagnosis)),
        run_dir=run_dir,
        duration_s=time.monotonic() - started_s,
        state=_state(judgement, run_dir) if keep else {},
    )
    return trial if keep else forgotten(trial)


def _fired(scenario: Scenario, judgement: Judgement, run_dir: Path) -> tuple[str, ...]:
    kinds = [fault.kind for fault in scenario.faults]
    if any(verdict.guarantee == "FaultFired" and verdict.outcome == "valid" for verdict in judgement.verdicts):
        return tuple(kinds)  # which needs no second look at the records
    seen = {event.data["index"] for event in load_history(run_dir).of(Kind.FAULT)} if kinds else set()
    return tuple(kind for index, kind in enumerate(kinds) if index in seen)


def forgotten(trial: Trial) -> Trial:
    """The trial, without its run directory if it passed."""
    if trial.outcome != "passed" or trial.run_dir is None:
        return trial
    shutil.rmtree(trial.run_dir, ignore_errors=True)
    return replace(trial, run_dir=None)


def way_of(judgement: Judgement) -> str:
    """The way not to pass: alike for two runs that do not pass for the same reason at other places.

    It must not depend on what was expected: a plan with fewer faults has another expectation.
    """
    if judgement.outcome == "passed":
        return ""
    verdict = judgement.blamed[0] if judgement.blamed else _first_broken(judgement)
    if verdict is None:
        return f"{judgement.outcome}: {_alike(judgement.headline)}"
    words = f", {_alike(verdict.reason)[:MAX_REASON]}" if verdict.guarantee in TOLD_BY_REASON else ""
    return f"{judgement.outcome}: {verdict.guarantee} {verdict.outcome}{words}"


def _first_broken(judgement: Judgement) -> Verdict | None:
    broken = [verdict for verdict in judgement.verdicts if verdict.outcome == "invalid"]
    return min(broken, key=lambda verdict: (verdict.restart or 0, verdict.step or 0), default=None)


def _alike(text: str) -> str:
    return re.sub(r"\d+", "N", text)[:MAX_WORDS]


# -- the same again ------------------------------------------------------------------------------------------------


def _state(judgement: Judgement, run_dir: Path) -> dict[str, Any]:
    """What two runs of one plan must have in common, as far as both have it: of two ranks that are through, the one
    that fails as it leaves may have the other one ended before its last word.
    """
    history = load_history(run_dir)
    ends = history.of(Kind.EXIT, restart=history.restarts)
    finals = {end.rank: [end.data.get(name) for name in STATE] for end in ends if end.data["code"] == 0}
    return {
        "verdicts": {verdict.guarantee: verdict.outcome for verdict in judgement.verdicts},
        "restarts": history.restarts,
    } | {f"final state of rank {rank}": final for rank, final in finals.items()}


def compared(one: Trial, other: Trial) -> Trial:
    """``one``; unknown if ``other``, the same plan once more, came to something else."""
    different = [name for name in one.state if name in other.state and one.state[name] != other.state[name]]
    if one.way != other.way:
        different.insert(0, "their outcome")
    if not different or one.outcome == "error" or other.outcome == "error":
        forgotten(other)
        return forgotten(one)
    seen = f"{one.headline} / {other.headline}"
    headline = f"two runs of one plan differ in {', '.join(different)}: {seen}; see also {other.run_dir}"
    return replace(one, outcome="unknown", headline=headline, way=f"unknown: runs differ in {', '.join(different)}")
