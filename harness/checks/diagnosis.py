"""The first cause of each failed restart: whose fault it was, and what it did; victims are not named.

Decided by what ranks sent and how their processes ended, in this order: the ranks' data or collectives parted; a rank
was ended by a signal that the launcher did not send, and not after one of the next two; an exception that did not come
out of communication; a rank left early; else it is a hang, and the ranks behind are named. Never by an error's text.
"""

from __future__ import annotations

from harness.checks.cause import Cause
from harness.checks.deaths import first_death
from harness.checks.ends import ends_of
from harness.checks.parted import parted_first
from harness.checks.records import failed_restarts
from harness.checks.standstill import (
    disconnected,
    ended_in_teardown,
    hang,
    left_early,
    stopped,
    stuck_at_the_end,
    was_leaving,
)
from harness.history import Baseline, History


def diagnose(history: History, baseline: Baseline | None = None) -> list[Cause]:
    """One cause for each launch that failed, by restart count.

    Args:
        baseline: helps to tell between two ranks whose collectives differ who is wrong.
    """
    return [first_cause(history, restart, baseline) for restart in failed_restarts(history)]


def first_cause(history: History, restart: int, baseline: Baseline | None) -> Cause:
    """Of one launch that failed."""
    ends = ends_of(history, restart)
    died = first_death(history, restart, ends)
    early = parted_first(history, restart, ends, died, baseline)
    if early is not None:
        return early
    if died is not None:
        return died
    return (
        stuck_at_the_end(history, restart, ends)
        or left_early(history, restart, ends)
        or was_leaving(history, restart, ends)
        or ended_in_teardown(history, restart, ends)
        or stopped(history, restart, ends)
        or disconnected(history, restart, ends)
        or hang(history, restart)
    )
