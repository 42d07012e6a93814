"""A launch that failed because its ranks did not do the same: their data or their collectives parted."""

from __future__ import annotations

from collections.abc import Mapping

from harness.checks.cause import Cause
from harness.checks.collectives import Deviation, first_deviation
from harness.checks.ends import End
from harness.checks.loaders import Parting, parting
from harness.checks.sent import sent_by_group
from harness.history import Baseline, History


def parted_first(
    history: History, restart: int, ends: Mapping[int, End], died: Cause | None, baseline: Baseline | None
) -> Cause | None:
    """What the ranks did differently before any of them died."""
    loaders, deviation = parting(history, restart), first_deviation(history, restart, baseline)
    if deviation is not None and _is_unwinding(deviation, ends):
        deviation = None
    if loaders is not None and (deviation is None or loaders.at.t_ns <= deviation.met_ns):
        cause = _of_loaders(loaders)
    elif deviation is not None:
        cause = _of_deviation(deviation)
    else:
        return None
    died_at = died.event if died is not None else None
    is_first = died_at is None or cause.event is None or cause.event.t_ns <= died_at.t_ns
    is_consequence = died is not None and deviation is not None and _died_of(history, deviation, died, ends)
    return cause if is_first or is_consequence else None


def _of_loaders(found: Parting) -> Cause:
    counts = ", ".join(f"{rank}: {count}" for rank, count in found.batches.items())
    return Cause(
        rank=found.rank,
        restart=found.restart,
        step=found.at.step,
        phase=found.at.phase,
        operation=None,
        how="loader",
        detail=f"loaders of unequal length in epoch {found.epoch}: {counts}",
        event=found.at,
    )


def _is_unwinding(deviation: Deviation, ends: Mapping[int, End]) -> bool:
    """Whether what a rank sent is only what it did on its way out, with an exception of its own."""
    if deviation.rank is None or deviation.is_unsent:
        return False
    end = ends[deviation.rank]
    if end.way != "exception" or end.in_collective or end.last is None:
        return False
    return end.last.seq <= deviation.at.seq and end.last.step == deviation.step


def _died_of(history: History, deviation: Deviation, died: Cause, ends: Mapping[int, End]) -> bool:
    """Whether a process aborted of what another rank did: inside the very calls in which that rank parted, as backends
    do on unequal shapes, or anywhere, when that rank came back from a call that it never sent and left.

    Its last record is older than its death, so that the order in time says nothing.
    """
    end = ends[died.rank] if died.rank is not None else None
    if end is None or end.signal != "SIGABRT" or deviation.rank == end.rank:
        return False
    met = sent_by_group(history, deviation.restart)[deviation.group].get(end.rank, [])[deviation.call - 1 :]
    return deviation.is_unsent or end.last in met


def _of_deviation(found: Deviation) -> Cause:
    who = "ranks differ" if found.rank is None else f"rank {found.rank} {found.how}"
    sent = "; ".join(f"{rank}: {what}" for rank, what in list(found.sent.items())[:8])
    return Cause(
        rank=found.rank,
        restart=found.restart,
        step=found.step,
        phase=found.phase,
        operation=found.operation,
        how=found.how,
        detail=f"{who} {found.operation}, call {found.call} ({sent})",
        event=found.at,
    )
