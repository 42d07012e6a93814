"""Where a crash may cut a recording: how far each rank had come.

A cut is a vector: for each rank, how many of its operations happened. It is possible if it holds, with each operation,
all that had certainly happened before it (Chandy and Lamport's consistent cuts).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from harness.crashstates.operation import SYNCS, Kind, Operation, Recording

Cut = tuple[int, ...]
# Without these a longer cut only adds what a crash may lose: whatever it allows, the longer one allows as well.
_ENDS_AN_INTERVAL = SYNCS | {Kind.ACK}


class Order:
    """The recording's operations rank by rank, and which cuts of it are possible."""

    def __init__(self, recording: Recording) -> None:
        self.by_rank: list[list[Operation]] = [[] for _ in range(recording.ranks)]
        self.place: dict[int, tuple[int, int]] = {}  # index -> (rank, position within the rank)
        for op in recording.operations:
            self.place[op.index] = (op.rank, len(self.by_rank[op.rank]))
            self.by_rank[op.rank].append(op)
        self._newest = {
            kind: [
                list(accumulate((op.step * (op.kind is kind) for op in ops), max, initial=0)) for ops in self.by_rank
            ]
            for kind in (Kind.BEGIN, Kind.ACK)
        }
        self._places = [(op, self.place[op.index]) for op in sorted(recording.operations, key=lambda op: op.index)]

    @property
    def whole(self) -> Cut:
        return tuple(len(ops) for ops in self.by_rank)

    def holds(self, cut: Cut, op: Operation) -> bool:
        rank, position = self.place[op.index]
        return position < cut[rank]

    def operations(self, cut: Cut) -> list[Operation]:
        """The operations before the cut, in the recorded order."""
        return [op for op, (rank, position) in self._places if position < cut[rank]]

    def newest(self, cut: Cut, kind: Kind) -> int:
        """The newest step that some rank had begun (BEGIN), or had returned from (ACK); 0: none."""
        return max(steps[position] for steps, position in zip(self._newest[kind], cut, strict=True))

    def is_before(self, first: Operation, second: Operation) -> bool:
        """Whether ``first`` had certainly happened when ``second`` did."""
        rank, position = self.place[first.index]
        if rank == second.rank:
            return position < self.place[second.index][1]
        return position < second.known[rank]

    def done(self, step: int) -> Cut:
        """All ranks have returned from the save of ``step``; 0: before the first save."""
        return tuple(
            max((i + 1 for i, op in enumerate(ops) if op.kind is Kind.ACK and op.step <= step), default=0)
            for ops in self.by_rank
        )

    def ahead(self, cut: Cut) -> Iterator[int]:
        """The ranks that can do their next operation."""
        for rank, ops in enumerate(self.by_rank):
            if cut[rank] < len(ops):
                known = ops[cut[rank]].known
                if all(known[other] <= cut[other] for other in range(len(cut)) if other != rank):
                    yield rank

    def is_possible(self, cut: Cut) -> bool:
        """Whether all that had certainly happened before what the cut holds is in it as well."""
        last = [ops[position - 1] for ops, position in zip(self.by_rank, cut, strict=True) if position]
        return all(known <= cut[other] for op in last for other, known in enumerate(op.known) if other != op.rank)

    def next(self, cut: Cut, rank: int) -> Operation:
        return self.by_rank[rank][cut[rank]]

    def stretched(self, cut: Cut) -> Cut:
        """The longest cut that needs no further sync and no further acknowledgement."""
        moved = True
        while moved:
            moved = False
            for rank in self.ahead(cut):
                if self.next(cut, rank).kind not in _ENDS_AN_INTERVAL:
                    cut = _advanced(cut, rank)
                    moved = True
        return cut


def every_cut(
    order: Order, most: int, seed: int, meanwhile: Callable[[], None] = lambda: None
) -> tuple[list[Cut], bool]:
    """The possible cuts, and whether these are all: else those that are the furthest apart, then random ones.

    Args:
        most: cuts to return; more, if the recorded run itself has more.
        meanwhile: called every now and then.
    """
    found = _reachable(order, (0,) * len(order.by_rank), lambda cut: cut, most, meanwhile)
    if len(found) <= most:
        return found, True
    chosen = dict.fromkeys(_extreme(order))
    most = max(most, len(chosen))
    draw = random.Random(seed)
    while len(chosen) < most:
        cut = (0,) * len(order.by_rank)
        for _ in range(draw.randrange(sum(order.whole) + 1)):
            if not (ranks := list(order.ahead(cut))):
                break
            cut = _advanced(cut, draw.choice(ranks))
        chosen[cut] = None
    return list(chosen)[:most], False


def interval_ends(order: Order, most: int, meanwhile: Callable[[], None] = lambda: None) -> tuple[list[Cut], bool]:
    """The cuts right before a sync or an acknowledgement, and at the end: what power loss needs; whether all are here.

    Between two syncs a longer cut only adds operations that may be lost anyway.
    """
    found = _reachable(order, order.stretched((0,) * len(order.by_rank)), order.stretched, most, meanwhile)
    return found[:most], len(found) <= most


def _reachable(
    order: Order, start: Cut, settle: Callable[[Cut], Cut], most: int, meanwhile: Callable[[], None]
) -> list[Cut]:
    found: dict[Cut, None] = {start: None}
    waiting = deque([start])
    while waiting and len(found) <= most:
        meanwhile()
        cut = waiting.popleft()
        for rank in order.ahead(cut):
            further = settle(_advanced(cut, rank))
            if further not in found:
                found[further] = None
                waiting.append(further)
    return list(found)


def _extreme(order: Order) -> Iterator[Cut]:
    """The recorded prefixes, and each rank stopped at each place while the others go as far as they can."""
    yield from (tuple(cut) for cut in _prefixes(order))
    for stopped, ops in enumerate(order.by_rank):
        for position in range(len(ops) + 1):
            yield _as_far_as_possible(order, stopped, position)


def _prefixes(order: Order) -> Iterator[Sequence[int]]:
    cut = [0] * len(order.by_rank)
    yield tuple(cut)
    for index in sorted(order.place):
        cut[order.place[index][0]] += 1
        yield tuple(cut)


def _as_far_as_possible(order: Order, stopped: int, position: int) -> Cut:
    cut = (0,) * len(order.by_rank)
    moved = True
    while moved:
        moved = False
        for rank in order.ahead(cut):
            if rank != stopped or cut[rank] < position:
                cut = _advanced(cut, rank)
                moved = True
                break
    return cut


def _advanced(cut: Cut, rank: int) -> Cut:
    return (*cut[:rank], cut[rank] + 1, *cut[rank + 1 :])
