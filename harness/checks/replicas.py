"""Is the model the same on all ranks?"""

from __future__ import annotations

from collections.abc import Mapping

from harness.checks.base import Verdict, guarantee, invalid, not_applicable, valid
from harness.checks.records import Updates, listed, updates
from harness.checks.vote import minority
from harness.history import Baseline, History
from harness.wire import Event, Kind

# Buffers and random states differ between healthy replicas: batch normalisation has local statistics, and each rank
# draws its own dropout.
SHARED = ("params", "optimizer")


@guarantee("ReplicasAgree", "after each update, parameters and optimizer state are byte-equal on all ranks")
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
        moments = [("before the first update", states)]
        steps = sorted({step for (_, k), mine in done.items() if k == restart for step in mine})
        for step in steps:
            here = {rank: done[rank, k][step] for rank, k in done if k == restart and step in done[rank, k]}
            moments.append((f"after update {step}", here))
        for moment, events in moments:
            for what in SHARED:
                if len({e.data[what] for e in events.values()}) > 1:
                    return _broken(history, baseline, done, moment, what, events)
            compared += len(events) > 1
    return valid(f"equal at {compared} moments") if compared else not_applicable("no two ranks did the same update")


def _broken(
    history: History, baseline: Baseline | None, done: Updates, moment: str, what: str, events: Mapping[int, Event]
) -> Verdict:
    digests = {rank: e.data[what] for rank, e in events.items()}
    odd = minority(digests)
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
        f"{what} {moment}: {who}", at, rank=rank, seen={"part": what, "ranks": list(odd), "digests": _named(digests)}
    )


def _unlike_elsewhere(
    baseline: Baseline | None, done: Updates, what: str, events: Mapping[int, Event]
) -> tuple[int, ...]:
    """The ranks whose digest is not the one that this step has in the baseline, or had in an earlier restart."""
    step, restart = next((e.step, e.restart) for e in events.values())
    known = {mine[step].data[what] for (_, k), mine in done.items() if k < restart and step in mine}
    if baseline is not None:
        known |= {steps[step][what] for steps in baseline.updates.values() if what in steps.get(step, {})}
    odd = tuple(rank for rank, e in sorted(events.items()) if e.data[what] not in known)
    return odd if known and len(odd) < len(events) else ()


def _named(values: Mapping[int, object]) -> dict[str, object]:
    return {f"rank {rank}": value for rank, value in sorted(values.items())}
