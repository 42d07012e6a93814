"""The states that a crash may leave: all of them where that is possible, else a bounded choice that says so.

A state is a file tree together with what had been acknowledged by then: the same tree is right before an
acknowledgement and may be wrong after it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from harness.crashstates.cuts import Cut, every_cut, interval_ends
from harness.crashstates.frames import Frame, frames_of
from harness.crashstates.models import ModelName, Models, Situation
from harness.crashstates.operation import Kind, Recording
from harness.crashstates.tree import Visible, key

DEFAULT_MOST = 20_000
_MOST_DEVIATIONS = 2  # of a bounded choice, before it draws: most bugs need one loss, or two that belong together
_SHARE_OF_FEW = 0.75  # the rest is drawn, whatever the number of pairs


@dataclass(frozen=True, slots=True)
class State:
    """What a crash left.

    Attributes:
        situation, chosen: where it came, and each unit's fate.
        acked: the newest step whose save had returned on some rank; 0: none.
        begun: the newest step whose save had been called on some rank; 0: none.
    """

    situation: Situation
    chosen: tuple[int, ...]
    visible: Visible
    acked: int
    begun: int

    @property
    def key(self) -> bytes:
        """Equal for equal trees."""
        return key(self.visible)


@dataclass
class Share:
    """How much of one model was looked at.

    Attributes:
        possible: fates that the model allows, over all cuts; the same tree may come of several.
        tried: those that were looked at.
        states: different states among them that no earlier model allows.
        has_all_cuts: False: there are more cuts than were looked at, and ``possible`` is of these alone.
    """

    model: ModelName
    possible: int = 0
    tried: int = 0
    states: int = 0
    has_all_cuts: bool = True

    @property
    def is_exhaustive(self) -> bool:
        return self.tried == self.possible and self.has_all_cuts


class Explorer:
    """The states of one recording, each once, under the weakest model that allows it.

    Args:
        names: the models, in the order of ``MODEL_NAMES``.
        most: states to try of a model; where there are more, those with few losses come first, then drawn ones.
        seed: of the draws.
        meanwhile: called every now and then while there is much to do for the next state.

    Attributes:
        shares: one a model, filled while ``states`` is iterated.
    """

    def __init__(
        self,
        recording: Recording,
        names: Sequence[ModelName],
        most: int = DEFAULT_MOST,
        seed: int = 0,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        self.models = Models(recording)
        self.shares = [Share(name) for name in names]
        self._most = most
        self._seed = seed
        self._meanwhile = meanwhile
        self._seen: set[tuple[object, int, int]] = set()
        self._seen_parts: set[tuple[object, ...]] = set()
        self._steps: dict[Cut, tuple[int, int]] = {}

    def states(self) -> Iterator[State]:
        """Every state once; those with few losses first where the choice is bounded."""
        for share in self.shares:
            yield from self._new_states(share, [self._at(share.model, cut) for cut in self._cuts(share)])

    def states_at(self, cut: Cut) -> Iterator[State]:
        """The same of a crash at ``cut`` alone."""
        for share in self.shares:
            yield from self._new_states(share, [self._at(share.model, cut)])

    def state(self, situation: Situation, chosen: tuple[int, ...]) -> State:
        """The state of these fates; ``situation.allows`` them."""
        return self._state(situation, chosen, situation.visible(chosen))

    def _cuts(self, share: Share) -> list[Cut]:
        order = self.models.order
        if share.model == "kill":
            cuts, share.has_all_cuts = every_cut(order, self._most, self._seed, self._meanwhile)
        else:
            cuts, share.has_all_cuts = interval_ends(order, self._most, self._meanwhile)
        return cuts

    def _at(self, model: ModelName, cut: Cut) -> Situation:
        self._meanwhile()
        return self.models.at(model, cut)

    def _state(self, situation: Situation, chosen: tuple[int, ...], visible: Visible) -> State:
        return State(situation, chosen, visible, *self._acked_and_begun(situation.cut))

    def _new_states(self, share: Share, situations: Sequence[Situation]) -> Iterator[State]:
        share.possible = sum(situation.num_assignments for situation in situations)
        for situation, chosen in self._assignments(share, situations):
            self._meanwhile()
            # Most come to what was there before. Where it is of the same parts, which the models keep, their ids tell.
            names, nodes = situation.parts(chosen)
            steps = self._acked_and_begun(situation.cut)
            parts = (names, steps, *map(id, nodes))
            if parts in self._seen_parts:
                continue
            self._seen_parts.add(parts)
            known = (names.content(nodes), *steps)
            if known not in self._seen:
                self._seen.add(known)
                share.states += 1
                yield self._state(situation, chosen, names.visible(nodes))

    def _assignments(
        self, share: Share, situations: Sequence[Situation]
    ) -> Iterator[tuple[Situation, tuple[int, ...]]]:
        """Fates that are allowed: all that differ in what can be seen, else those to try."""
        frames = self._all_frames(situations)
        for frame in frames or ():
            for chosen in frame.assignments():
                share.tried += frame.weight
                if frame.situation.allows(chosen):
                    yield frame.situation, chosen
        if frames is None:
            for situation, chosen in self._bounded(situations):
                share.tried += 1
                if situation.allows(chosen):
                    yield situation, chosen

    def _all_frames(self, situations: Sequence[Situation]) -> list[Frame] | None:
        """None if these would be more states than shall be tried."""
        found: list[Frame] = []
        num_left = self._most
        for situation in situations:
            self._meanwhile()
            frames = frames_of(situation, num_left)
            if frames is None or (num_left := num_left - sum(frame.num_states for frame in frames)) < 0:
                return None
            found += frames
        return found

    def _acked_and_begun(self, cut: Cut) -> tuple[int, int]:
        if cut not in self._steps:
            order = self.models.order
            self._steps[cut] = order.newest(cut, Kind.ACK), order.newest(cut, Kind.BEGIN)
        return self._steps[cut]

    def _bounded(self, situations: Sequence[Situation]) -> Iterator[tuple[Situation, tuple[int, ...]]]:
        tried: set[tuple[Cut, tuple[int, ...]]] = set()
        passes = [(n, is_lost) for n in range(_MOST_DEVIATIONS + 1) for is_lost in (False, True)]
        few = ((turn, *pair) for turn in passes for pair in _by_turns(situations, *turn))
        for turn, situation, chosen in few:
            # Every single loss is tried, however many there are: a choice must not pass over the plainest bug.
            if turn > (1, False) and len(tried) >= _SHARE_OF_FEW * self._most:
                break
            if (situation.cut, chosen) not in tried:
                tried.add((situation.cut, chosen))
                yield situation, chosen
        draw = random.Random(self._seed)
        weights = list(itertools.accumulate(situation.num_assignments for situation in situations))
        total = weights[-1]
        while len(tried) < min(total, self._most):
            (situation,) = draw.choices(situations, cum_weights=weights)
            chosen = tuple(draw.randrange(len(unit.fates)) for unit in situation.units)
            if (situation.cut, chosen) not in tried:
                tried.add((situation.cut, chosen))
                yield situation, chosen


def _by_turns(
    situations: Sequence[Situation], num_deviations: int, is_lost: bool
) -> Iterator[tuple[Situation, tuple[int, ...]]]:
    """One of each situation after the other, so that a bound does not leave out the last ones."""
    turns = [(situation, _deviations(situation, num_deviations, is_lost)) for situation in situations]
    while turns:
        taken = [(situation, next(rest, None), rest) for situation, rest in turns]
        yield from ((situation, chosen) for situation, chosen, _ in taken if chosen is not None)
        turns = [(situation, rest) for situation, chosen, rest in taken if chosen is not None]


def _deviations(situation: Situation, num_deviations: int, is_lost: bool) -> Iterator[tuple[int, ...]]:
    """Fates that differ in so many units from all kept; with ``is_lost`` from all lost."""
    usual = [0 if is_lost else unit.kept for unit in situation.units]
    for which in itertools.combinations(range(len(situation.units)), num_deviations):
        others = ([f for f in range(len(situation.units[i].fates)) if f != usual[i]] for i in which)
        for fates in itertools.product(*others):
            chosen = list(usual)
            for i, fate in zip(which, fates, strict=True):
                chosen[i] = fate
            yield tuple(chosen)
