"""Which batches each update was made of, and where one rank trains on another number of the epoch than the others.

A rank that leaves a batch out alone (an overflow, an error, a bad sample) and goes on with the next one sends the same
collectives as before, and all ranks hold the same parameters: only its place in the epoch shows it, until its loader
ends before the others' (NVIDIA-NeMo/Automodel#2468, Lightning-AI/pytorch-lightning#5243).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.checks.records import listed
from harness.checks.vote import minority
from harness.history import History
from harness.wire import Event, Kind


def with_batches(history: History) -> Iterator[tuple[Event, Sequence[Event], bool]]:
    """Each update with its batches, and whether they are known: else the last one that was read stands there, if any.

    They are known by their sample ids. One update of several batches may span two epochs, and pass over some.
    """
    loaded: dict[tuple[int, int], list[Event]] = {}
    for event in history.of((Kind.BATCH, Kind.UPDATE)):
        recent = loaded.setdefault((event.rank, event.restart), [])
        if event.kind == Kind.BATCH:
            recent.append(event)
            continue
        used = _used(recent, event.data["batches"], event.data["ids"])
        if used is None:
            yield event, recent[-1:], False
        else:
            yield event, [recent[place] for place in used], True
            del recent[: used[-1] + 1 if used else 0]


def _used(recent: Sequence[Event], count: int, ids: list[int] | None) -> list[int] | None:
    """Where the ``count`` batches that consist of ``ids`` stand; None if they do not. Those drawn ahead come later."""
    if ids is None:
        return None
    places: list[int] = []
    left = len(ids)
    for place in range(len(recent) - 1, -1, -1):
        mine = recent[place].data["ids"]
        if len(places) < count and mine and ids[left - len(mine) : left] == mine:
            places.append(place)
            left -= len(mine)
    return places[::-1] if (len(places), left) == (count, 0) else None


@dataclass(frozen=True, kw_only=True)
class Shift:
    """The first update of a launch that does not end with the batch of the same number on all ranks.

    Attributes:
        rank: the odd one; None if nothing tells.
        at: its update, or that of the lowest rank.
        numbers: per rank, from 0 in its epoch.
    """

    rank: int | None
    step: int
    at: Event
    numbers: dict[str, int]

    @property
    def words(self) -> str:
        who = "" if self.rank is None else f"{listed([self.rank])} is the odd one; "
        return who + ", ".join(f"{rank}: {number}" for rank, number in self.numbers.items())


def first_shift(history: History, restart: int) -> Shift | None:
    """Where the ranks of one launch first train on batches of different numbers; None if they never do.

    Updates whose batches are not known by their ids say nothing.
    """
    if any(event.data.get("aside") for event in history.of(Kind.BATCH) if event.restart == restart):
        return None  # a thread reads ahead: what counts as used may depend on how far it was
    ends: dict[int, dict[int, tuple[Event, int]]] = {}  # step -> rank -> (update, number of its last batch)
    for update, batches, is_known in with_batches(history):
        if update.restart == restart and is_known and batches:
            ends.setdefault(update.step, {})[update.rank] = (update, batches[-1].data["index"])
    advances = _advances(ends)
    for step, by_rank in sorted(ends.items()):
        numbers = {rank: number for rank, (_, number) in by_rank.items()}
        if len(set(numbers.values())) < 2:
            continue
        odd = minority(numbers) or _unusual(advances, step, numbers)
        rank = odd[0] if odd else None
        at, _ = by_rank[min(by_rank) if rank is None else rank]
        return Shift(rank=rank, step=step, at=at, numbers={f"rank {r}": n for r, n in sorted(numbers.items())})
    return None


def _advances(ends: Mapping[int, Mapping[int, tuple[Event, int]]]) -> dict[tuple[int, int], int]:
    """(rank, step) -> how many batches it went on; from the start of a pass, if the one before ended meanwhile."""
    found: dict[tuple[int, int], int] = {}
    last: dict[int, int] = {}
    for step, by_rank in sorted(ends.items()):
        for rank, (_, number) in by_rank.items():
            before = last.get(rank, -1)
            found[rank, step] = number - before if number > before else number + 1
            last[rank] = number
    return found


def _unusual(advances: Mapping[tuple[int, int], int], step: int, ranks: Mapping[int, int]) -> tuple[int, ...]:
    """Of ranks that differ the one which alone went on by another number than updates do as a rule."""
    usual = Counter(advances.values()).most_common(1)[0][0]
    odd = tuple(rank for rank in sorted(ranks) if advances[rank, step] != usual)
    return odd if len(odd) < len(ranks) else ()
