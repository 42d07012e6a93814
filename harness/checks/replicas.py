"""Is the model the same on all ranks?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from harness.checks.base import Verdict, guarantee, invalid, not_applicable, valid
from harness.checks.records import listed
from harness.checks.vote import minority
from harness.events import Place, Process, view
from harness.history import Baseline, History
from harness.wire import Event, Kind

# Buffers and random states differ between healthy replicas: batch normalisation has local statistics, and each rank
# draws its own dropout. Before anything was trained buffers have no statistics yet: there they must be equal.
SHARED = ("params", "optimizer")
AFTER_UPDATE = ("scaler", *SHARED)  # scalers that differ make the rest differ, and tell who was first
AT_BEGIN = (*SHARED, "buffers")
OPTIMIZER = ("optimizer",)


@guarantee(
    "ReplicasAgree",
    "after each update, parameters, optimizer state and gradient scalers are byte-equal on all ranks, and before the "
    "first one buffers, too; an update that overflows is left out by all ranks or by none",
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
    own = OPTIMIZER if has_own_optimizers(baseline) else ()
    for restart in range(history.restarts + 1):
        states = {e.rank: e for e in history.of(Kind.STATE, restart=restart)}
        for what in AT_BEGIN if restart == 0 and history.plan.start_from is None else SHARED:
            if what not in own and len({_value(e, what) for e in states.values()}) > 1:
                return _broken(history, baseline, "before the first update", what, states)
        compared += len(states) > 1
        alike = Counter(one.updates for (_, launch), one in made.items() if launch == restart)
        steps: dict[int, dict[tuple[str, ...], int]] = {}  # step -> digests -> how many ranks have them
        for updates, num_ranks in alike.items():
            for step, values in updates:
                ranks = steps.setdefault(step, {})
                ranks[values] = ranks.get(values, 0) + num_ranks
        apart = _left_out_by_some(history, restart, made)
        for step, values_of_ranks in sorted(steps.items()):
            if any(step >= event.step for event in apart.values()):
                break
            for place, what in enumerate(AFTER_UPDATE):
                if what not in own and len({values[place] for values in values_of_ranks}) > 1:
                    events = _first_of_each(history.of(Kind.UPDATE, restart=restart, step=step))
                    return _broken(history, baseline, f"after update {step}", what, events)
            compared += sum(values_of_ranks.values()) > 1
        if apart:
            return _decided_apart(history, baseline, apart)
    return valid(f"equal at {compared} moments") if compared else not_applicable("no two ranks did the same update")


def has_own_optimizers(baseline: Baseline | None) -> bool:
    """Whether each rank keeps something of its own in its optimizer, and nothing comes of it.

    Some optimizers share the work, so that each rank has the moments of some parameters (Muon, distributed Shampoo),
    and some note a loss or a time there. In the fault-free run the ranks' optimizers differ then, or those of two such
    runs, and all parameters stay alike in the updates after that, which moments that went astray would change.
    """
    if baseline is None or not baseline.updates:
        return False
    first, *others = baseline.updates.values()
    if any("optimizer" not in digests for digests in first.values()):
        return True
    if any(other.keys() != first.keys() for other in others):
        return False
    if any(other[step].get("params") != digests.get("params") for other in others for step, digests in first.items()):
        return False
    apart = [step for step in first if len({each[step].get("optimizer") for each in baseline.updates.values()}) > 1]
    return bool(apart) and min(apart) < max(first)


class Digests(NamedTuple):
    """What of each update of one process all ranks share: (step, as ``AFTER_UPDATE``), of a repeated step once."""

    updates: tuple[tuple[int, tuple[str, ...]], ...]
    is_sharded: bool
    is_made: tuple[bool, ...]  # of each gradient, in order: False where it was left out, for it overflowed


@view
def digests(process: Process) -> Digests:
    made = _firsts(process.of(Kind.UPDATE))
    shared = tuple((step, tuple(_value(event, what) for what in AFTER_UPDATE)) for step, event in made.items())
    is_made = tuple(event.kind == Kind.UPDATE for event in process.of(Kind.UPDATE, Kind.SKIPPED))
    return Digests(shared, any(event.data.get("sharded") for event in made.values()), is_made)


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


def _left_out_by_some(history: History, restart: int, made: Mapping[Place, Digests]) -> dict[int, Event]:
    """Rank -> what it did with the first gradient that some applied and others left out; empty if there is none."""
    decided = {rank: one.is_made for (rank, launch), one in made.items() if launch == restart and one.is_made}
    alike = list(dict.fromkeys(decided.values()))
    index = next((i for i, first in enumerate(zip(*alike, strict=False)) if len(set(first)) > 1), None)
    if index is None:
        return {}
    return {rank: history.process(rank, restart).of(Kind.UPDATE, Kind.SKIPPED)[index] for rank in sorted(decided)}


def _decided_apart(history: History, baseline: Baseline | None, events: Mapping[int, Event]) -> Verdict:
    odd = minority({rank: event.kind for rank, event in events.items()})
    if odd is None:  # who made it, and came to what it should come to, is not the odd one
        made = {rank: event for rank, event in events.items() if event.kind == Kind.UPDATE}
        known = _known(history, baseline, "params", made)
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
    """The ranks whose digest is not one that is known of this update."""
    known = _known(history, baseline, what, events)
    odd = tuple(rank for rank, e in sorted(events.items()) if _value(e, what) not in known)
    return odd if known and len(odd) < len(events) else ()


def _known(history: History, baseline: Baseline | None, what: str, events: Mapping[int, Event]) -> set[str]:
    """The digests that this update has in the baseline, or had in an earlier restart."""
    step, restart = next((e.step, e.restart) for e in events.values())
    earlier = (_first_of_each(history.of(Kind.UPDATE, restart=k, step=step)) for k in range(restart))
    known = {_value(event, what) for ranks in earlier for event in ranks.values()}
    if baseline is not None:
        known |= {steps[step][what] for steps in baseline.updates.values() if what in steps.get(step, {})}
    return known


def _value(event: Event, what: str) -> str:
    """A digest as it is; of scalers their numbers, as text."""
    return str(event.data.get(what))


def _named(events: Mapping[int, Event], what: str) -> dict[str, object]:
    return {f"rank {rank}": event.data[what] for rank, event in sorted(events.items())}
