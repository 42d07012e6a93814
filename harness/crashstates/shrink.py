"""The least that has to be lost for a state to fail: what a person has to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from harness.crashstates.cuts import Cut
from harness.crashstates.explore import Explorer, State
from harness.crashstates.models import Situation
from harness.crashstates.operation import Operation
from harness.crashstates.units import Fate, Unit

IsSame = Callable[[State], bool]


@dataclass(frozen=True, slots=True)
class Loss:
    """One unit that did not come through whole."""

    unit: Unit
    fate: Fate


def losses(situation: Situation, chosen: Sequence[int]) -> list[Loss]:
    """What these fates lose, in the recorded order."""
    units = zip(situation.units, chosen, strict=True)
    found = [Loss(unit, unit.fates[fate]) for unit, fate in units if fate != unit.kept]
    return sorted(found, key=lambda loss: lost_operations(loss)[0].index)


def lost_operations(loss: Loss) -> tuple[Operation, ...]:
    """The operations of the unit that the fate did not keep; a torn or partly written file's are all."""
    return tuple(op for op in loss.unit.operations if op.index not in loss.fate.kept)


def shrink(explorer: Explorer, state: State, is_same: IsSame) -> State:
    """A state that fails in the same way with as few losses, as little lost, and as short a run as can be found.

    Args:
        is_same: whether a state has the verdict that ``state`` has.
    """
    while (simpler := next((s for s in _simpler(explorer, state) if is_same(s)), None)) is not None:
        state = simpler
    return state


def _simpler(explorer: Explorer, state: State) -> Iterator[State]:
    yield from _with_less_lost(explorer, state)
    yield from _cut_earlier(explorer, state)


def _with_less_lost(explorer: Explorer, state: State) -> Iterator[State]:
    """One loss undone; or replaced by the unit's plainest fate, which is to be lost as a whole."""
    situation, chosen = state.situation, state.chosen
    for i, unit in enumerate(situation.units):
        if chosen[i] == unit.kept:
            continue
        # A journal's fates are ordered: losing less is the next one up.
        fates = range(unit.kept, chosen[i], -1) if len(unit.operations) > 1 and not unit.fates[0].file else [unit.kept]
        for fate in fates:
            yield from _state(explorer, situation, (*chosen[:i], fate, *chosen[i + 1 :]))
        if unit.fates[0].file is not None and chosen[i] > 0:
            yield from _state(explorer, situation, (*chosen[:i], 0, *chosen[i + 1 :]))


def _cut_earlier(explorer: Explorer, state: State) -> Iterator[State]:
    """One rank stopped one operation earlier, the same things being lost."""
    situation = state.situation
    for rank, position in enumerate(situation.cut):
        if not position:
            continue
        cut: Cut = (*situation.cut[:rank], position - 1, *situation.cut[rank + 1 :])
        if not explorer.models.order.is_possible(cut):
            continue
        shorter = explorer.models.at(situation.model, cut)
        chosen = _same_losses(situation, state.chosen, shorter)
        if chosen is not None:
            yield from _state(explorer, shorter, chosen)


def _same_losses(situation: Situation, chosen: tuple[int, ...], shorter: Situation) -> tuple[int, ...] | None:
    """The fates in ``shorter`` that lose the same, but for what was not done by then; None if there are none."""
    wanted = {
        unit.operations[0].index: unit.fates[fate]
        for unit, fate in zip(situation.units, chosen, strict=True)
        if fate != unit.kept
    }
    found = []
    for unit in shorter.units:
        fate = wanted.get(unit.operations[0].index, unit.fates[unit.kept])
        same = [i for i, other in enumerate(unit.fates) if _is_same_fate(other, fate)]
        if not same:
            return None
        found.append(same[0])
    return tuple(found)


def _is_same_fate(one: Fate, other: Fate) -> bool:
    if one.file is not None and other.file is not None:
        return one.file[1].data == other.file[1].data
    return (one.kept, one.appeared, one.vanished) == (other.kept, other.appeared, other.vanished)


def _state(explorer: Explorer, situation: Situation, chosen: tuple[int, ...]) -> Iterator[State]:
    if situation.allows(chosen):
        yield explorer.state(situation, chosen)
