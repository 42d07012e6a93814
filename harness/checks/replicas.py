"""Is the model the same on all ranks?"""

from __future__ import annotations

from collections.abc import Mapping

from harness.checks.base import Verdict, guarantee, invalid, not_applicable, valid
from harness.checks.records import Updates, listed, updates
from harness.checks.vote import minority
from harness.history import Baseline, History
from harness.wire import Event, Kind

# Buffers and random states differ between healthy replicas: batch normalisation has local statistics, and each rank
# draws its own dropout. Before anything was trained buffers have no statistics yet: there they must be equal.
SHARED = ("params", "optimizer")
AFTER_UPDATE = ("scaler", *SHARED)  # scalers that differ make the rest differ, and tell who was first
AT_BEGIN = (*SHARED, "buffers")


@guarantee(
    "ReplicasAgree",
    "after each update, parameters, optimizer state and gradient scalers are byte-equal on all ranks, and before the "
    "first one buffers, too; an update that overflows is left out by all ranks or by none",
)
def replicas_agree(history: History, baseline: Baseline | None) -> Verdict:
    done = updates(history)
    if history.plan.ranks < 2:
        return not_applicable("one rank has no replica")
    if not done:
        return not_applicable("no update is on record")
    if any(e.data.get("sharded") for mine in done.values() for e in mine.values()):
        return not_applicable("the state is sharded: ranks hold different parts of it")
    compared = 0
    for restart in range(history.restarts + 1):
        states = {e.rank: e for e in history.of(Kind.STATE) if e.restart == restart}
        is_begin = restart == 0 and history.plan.start_from is None
        moments = [("before the first update", states, AT_BEGIN if is_begin else SHARED)]
        apart = _left_out_by_some(history, restart)
        steps = sorted({step for (_, k), mine in done.items() if k == restart for step in mine})
        for step in steps:
            if any(step >= event.step for event in apart.values()):
                break
            here = {rank: done[rank, k][step] for rank, k in done if k == restart and step in done[rank, k]}
            moments.append((f"after update {step}", here, AFTER_UPDATE))
        for moment, events, compared_here in moments:
            for what in compared_here:
                if len({_value(e, what) for e in events.values()}) > 1:
                    return _broken(history, baseline, done, moment, what, events)
            compared += len(events) > 1
        if apart:
            return _decided_apart(baseline, done, apart)
    return valid(f"equal at {compared} moments") if compared else not_applicable("no two ranks did the same update")


def _left_out_by_some(history: History, restart: int) -> dict[int, Event]:
    """Rank -> what it did with the first gradient that some applied and others left out; empty if there is none."""
    attempts = [history.of((Kind.UPDATE, Kind.SKIPPED), rank=rank, restart=restart) for rank in history.ranks]
    for events in zip(*filter(None, attempts), strict=False):
        if len({event.kind for event in events}) > 1:
            return {event.rank: event for event in events}
    return {}


def _decided_apart(baseline: Baseline | None, done: Updates, events: Mapping[int, Event]) -> Verdict:
    odd = minority({rank: event.kind for rank, event in events.items()})
    if odd is None:  # who made it, and came to what it should come to, is not the odd one
        made = {rank: event for rank, event in events.items() if event.kind == Kind.UPDATE}
        known = _known(baseline, done, "params", made)
        is_right = all(_value(event, "params") in known for event in made.values())
        odd = tuple(rank for rank in events if (rank in made) != is_right) if known else ()
    rank = odd[0] if odd else None
    at = events[rank if rank is not None else min(events)]
    skipped = [rank for rank, event in events.items() if event.kind == Kind.SKIPPED]
    return invalid(
        f"{listed(skipped)} left update {at.step} out, for a gradient overflowed, and the other ranks made it",
        at,
        rank=rank,
        seen={"part": "the decision", "ranks": list(odd)}
        | {f"rank {rank}": "left out" if rank in skipped else "made" for rank in sorted(events)},
    )


def _broken(
    history: History, baseline: Baseline | None, done: Updates, moment: str, what: str, events: Mapping[int, Event]
) -> Verdict:
    odd = minority({rank: _value(e, what) for rank, e in events.items()})
    if odd is None:
        odd = _unlike_elsewhere(baseline, done, what, events)
    rank = odd[0] if odd else None
    at = events[rank if rank is not None else min(events)]
    who = (
        f"{listed(odd)} differ{'s' * (len(odd) == 1)}"
        if odd
        else "ranks differ, and nothing on record tells who is odd"
    )
    return invalid(
        f"{what} {moment}: {who}", at, rank=rank, seen={"part": what, "ranks": list(odd), what: _named(events, what)}
    )


def _unlike_elsewhere(
    baseline: Baseline | None, done: Updates, what: str, events: Mapping[int, Event]
) -> tuple[int, ...]:
    """The ranks whose digest is not one that is known of this update."""
    known = _known(baseline, done, what, events)
    odd = tuple(rank for rank, e in sorted(events.items()) if _value(e, what) not in known)
    return odd if known and len(odd) < len(events) else ()


def _known(baseline: Baseline | None, done: Updates, what: str, events: Mapping[int, Event]) -> set[str]:
    """The digests that this update has in the baseline, or had in an earlier restart."""
    step, restart = next((e.step, e.restart) for e in events.values())
    known = {_value(mine[step], what) for (_, k), mine in done.items() if k < restart and step in mine}
    if baseline is not None:
        known |= {steps[step][what] for steps in baseline.updates.values() if what in steps.get(step, {})}
    return known


def _value(event: Event, what: str) -> str:
    """A digest as it is; of scalers their numbers, as text."""
    return str(event.data.get(what))


def _named(events: Mapping[int, Event], what: str) -> dict[str, object]:
    return {f"rank {rank}": event.data[what] for rank, event in sorted(events.items())}
