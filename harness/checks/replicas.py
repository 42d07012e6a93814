"""Is the model the same on all ranks?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from harness.checks.base import Verdict, guarantee, invalid, not_applicable, valid
from harness.checks.records import listed
from harness.checks.vote import minority
from harness.events import Process, view
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
    "first one buffers, too",
)
def replicas_agree(history: History, baseline: Baseline | None) -> Verdict:
    made = history.each(digests)
    if history.plan.ranks < 2:
        return not_applicable("one rank has no replica")
    if not any(one.updates for one in made.values()):
        return not_applicable("no update is on record")
    if any(one.is_sharded for one in made.values()):
        return not_applicable("the state is sharded: ranks hold different parts of it")
    compared = 0
    for restart in range(history.restarts + 1):
        states = {e.rank: e for e in history.of(Kind.STATE, restart=restart)}
        for what in AT_BEGIN if restart == 0 and history.plan.start_from is None else SHARED:
            if len({_value(e, what) for e in states.values()}) > 1:
                return _broken(history, baseline, "before the first update", what, states)
        compared += len(states) > 1
        alike = Counter(one.updates for (_, launch), one in made.items() if launch == restart)
        steps: dict[int, dict[tuple[str, ...], int]] = {}  # step -> digests -> how many ranks have them
        for updates, num_ranks in alike.items():
            for step, values in updates:
                ranks = steps.setdefault(step, {})
                ranks[values] = ranks.get(values, 0) + num_ranks
        for step, values_of_ranks in sorted(steps.items()):
            for place, what in enumerate(AFTER_UPDATE):
                if len({values[place] for values in values_of_ranks}) > 1:
                    events = _first_of_each(history.of(Kind.UPDATE, restart=restart, step=step))
                    return _broken(history, baseline, f"after update {step}", what, events)
            compared += sum(values_of_ranks.values()) > 1
    return valid(f"equal at {compared} moments") if compared else not_applicable("no two ranks did the same update")


class Digests(NamedTuple):
    """What of each update of one process all ranks share: (step, as ``AFTER_UPDATE``), of a repeated step once."""

    updates: tuple[tuple[int, tuple[str, ...]], ...]
    is_sharded: bool


@view
def digests(process: Process) -> Digests:
    made = _firsts(process.of(Kind.UPDATE))
    shared = tuple((step, tuple(_value(event, what) for what in AFTER_UPDATE)) for step, event in made.items())
    return Digests(shared, any(event.data.get("sharded") for event in made.values()))


def _firsts(updates: Iterable[Event]) -> dict[int, Event]:
    found: dict[int, Event] = {}
    for event in updates:
        found.setdefault(event.step, event)
    return found


def _first_of_each(events: Iterable[Event]) -> dict[int, Event]:
    found: dict[int, Event] = {}
    for event in events:
        found.setdefault(event.rank, event)
    return found


def _broken(
    history: History, baseline: Baseline | None, moment: str, what: str, events: Mapping[int, Event]
) -> Verdict:
    odd = minority({rank: _value(e, what) for rank, e in events.items()})
    if odd is None:
        odd = _unlike_elsewhere(history, baseline, what, events)
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
    history: History, baseline: Baseline | None, what: str, events: Mapping[int, Event]
) -> tuple[int, ...]:
    """The ranks whose digest is not the one that this step has in the baseline, or had in an earlier restart."""
    step, restart = next((e.step, e.restart) for e in events.values())
    earlier = (_first_of_each(history.of(Kind.UPDATE, restart=k, step=step)) for k in range(restart))
    known = {_value(event, what) for ranks in earlier for event in ranks.values()}
    if baseline is not None:
        known |= {steps[step][what] for steps in baseline.updates.values() if what in steps.get(step, {})}
    odd = tuple(rank for rank, e in sorted(events.items()) if _value(e, what) not in known)
    return odd if known and len(odd) < len(events) else ()


def _value(event: Event, what: str) -> str:
    """A digest as it is; of scalers their numbers, as text."""
    return str(event.data.get(what))


def _named(events: Mapping[int, Event], what: str) -> dict[str, object]:
    return {f"rank {rank}": event.data[what] for rank, event in sorted(events.items())}
