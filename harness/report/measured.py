"""What a run's clock says: how fast the fault was seen, how fast the job was back, what a save costs."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from harness.history import History
from harness.report.timeline import Timeline
from harness.report.timeline import resumed_step as resumed_step_of
from harness.wire import Event, Kind


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Times of one run, in seconds; None where the run has no such thing.

    Attributes:
        detection_s: from the first fault to the first error that any rank or the launcher saw: an exception, the start
            of the next launch, or the end of a run that failed.
        recovery_s: from the first fault to the first update that had not been done before.
        lost_steps: updates that had been done and were done again, of the rank that had most.
        resumed_step: the step that the last launch went on from.
        save_s: median of the checkpoints that were saved, from the first rank's begin to the last rank's end.
        step_s: median time from one update to the next, saves left out.
        restart_s: from the first fault to the first update after it: what a failure costs beside the lost steps.
    """

    detection_s: float | None
    recovery_s: float | None
    lost_steps: int
    resumed_step: int | None
    save_s: float | None
    step_s: float | None
    restart_s: float | None


def measure(history: History, timeline: Timeline) -> Measured:
    fault = next(iter(history.of(Kind.FAULT)), None)
    recovered = [m.at_s for m in timeline.moments if m.kind == "recovered"]
    fault_s = None if fault is None else (fault.t_ns - history.outcome.started_ns) / 1e9
    after = None if fault is None else _first(history.of(Kind.UPDATE), fault)
    return Measured(
        detection_s=None if fault is None else _detection_s(history, fault),
        recovery_s=next((at - fault_s for at in recovered if fault_s is not None and at > fault_s), None),
        lost_steps=max((p.replayed[1] - p.replayed[0] + 1 for p in timeline.processes if p.replayed), default=0),
        resumed_step=resumed_step_of(history, history.restarts) if history.restarts else None,
        save_s=_median(save.end_s - save.begin_s for save in timeline.saves if save.end_s is not None),
        step_s=_step_s(history),
        restart_s=None if after is None or fault is None else (after.t_ns - fault.t_ns) / 1e9,
    )


def _detection_s(history: History, fault: Event) -> float | None:
    seen = [
        event.t_ns
        for event in history.of((Kind.EXCEPTION, Kind.START, Kind.EXIT))
        if event.t_ns > fault.t_ns
        and (event.kind == Kind.EXCEPTION or event.restart > fault.restart or event.data.get("code"))
    ]
    if history.outcome.exit_code != 0:
        seen.append(history.outcome.ended_ns)
    return min(((at_ns - fault.t_ns) / 1e9 for at_ns in seen), default=None)


def _first(updates: Iterable[Event], fault: Event) -> Event | None:
    return next((event for event in updates if event.restart > fault.restart), None)


def _step_s(history: History) -> float | None:
    """Of rank 0: all ranks go at one pace."""
    gaps = []
    for restart in range(history.restarts + 1):
        before: int | None = None
        for event in history.of((Kind.UPDATE, Kind.SAVE_START, Kind.FAULT), rank=0, restart=restart):
            if event.kind == Kind.UPDATE and before is not None:
                gaps.append((event.t_ns - before) / 1e9)
            before = event.t_ns if event.kind == Kind.UPDATE else None
    return _median(gaps)


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return statistics.median(found) if found else None
