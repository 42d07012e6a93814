"""Faults that the records show to have changed nothing: what they damaged is nothing that training reads."""

from __future__ import annotations

from harness.faults import Fault
from harness.history import Baseline, History
from harness.wire import Kind

_STATE = ("params", "optimizer", "buffers")


def vanished(history: History, baseline: Baseline | None) -> frozenset[int]:
    """Indices of the planned faults that may be masked, and were: every rank's update is the fault-free run's."""
    if baseline is None or not baseline.repeatable:
        return frozenset()
    return frozenset(
        index
        for index, fault in enumerate(history.plan.faults)
        if fault.may_be_masked and _changed_nothing(history, baseline, index, fault)
    )


def _changed_nothing(history: History, baseline: Baseline, index: int, fault: Fault) -> bool:
    fired = [event for event in history.of(Kind.FAULT) if event.data.get("index") == index]
    if {event.rank for event in fired} != {*fault.targets(history.plan.ranks)}:
        return False
    for event in fired:
        made = {e.rank: e.data for e in history.of(Kind.UPDATE, restart=event.restart, step=event.step)}
        for rank in history.ranks:
            expected = baseline.updates.get(rank, {}).get(event.step, {})
            here = made.get(rank, {})
            # A part that one of them does not tell of may be another one.
            if any(None in (pair := (here.get(name), expected.get(name))) or pair[0] != pair[1] for name in _STATE):
                return False
    return True
