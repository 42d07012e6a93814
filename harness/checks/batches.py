"""Which batches each update was made of, and where one rank trains on another number of the epoch than the others.

A rank that leaves a batch out alone (an overflow, an error, a bad sample) and goes on with the next one sends the same
collectives as before, and all ranks hold the same parameters: only its place in the epoch shows it, until its loader
ends before the others' (NVIDIA-NeMo/Automodel#2468, Lightning-AI/pytorch-lightning#5243).
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from harness.checks.records import listed
from harness.checks.vote import minority
from harness.events import Process, view
from harness.history import History
from harness.wire import Event, Kind

Ends = dict[int, dict[int, tuple[int, int, int]]]  # step -> rank -> update's t_ns and line, number of its last batch


class Part(NamedTuple):
    """One batch of an update, or its whole where the batches are not known: then with the loader that was read last.

    Attributes:
        number: of the batch in its epoch, from 0; None if the batches are not known.
        samples: how many sample ids of the update are its.
    """

    loader: int | None
    epoch: int | None
    number: int | None
    samples: int


class Update(NamedTuple):
    """What one update was made of; ``parts`` is None if its sample ids are not on record."""

    step: int
    parts: tuple[Part, ...] | None


class Trained(NamedTuple):
    """What the updates of one process were made of.

    Attributes:
        seqs, t_ns: of each update.
        ids: of all updates one after the other, of each as many as its parts say.
        has_read_aside: a thread beside the training read a batch.
    """

    updates: tuple[Update, ...]
    seqs: Sequence[int]
    t_ns: Sequence[int]
    ids: Sequence[int]
    has_read_aside: bool


@view
def trained(process: Process) -> Trained:
    """The batches of an update are known by their sample ids. It may span two epochs, and pass over some batches."""
    recent: list[Event] = []
    updates: list[Update] = []
    all_ids: list[int] = []
    seqs, t_ns, has_read_aside = array("I"), array("q"), False
    for event in process.of(Kind.BATCH, Kind.UPDATE):
        if event.kind == Kind.BATCH:
            recent.append(event)
            has_read_aside |= bool(event.data.get("aside"))
            continue
        ids = event.data["ids"]
        used = _used(recent, event.data["batches"], ids)
        if used is None:
            loader = recent[-1].data["loader"] if recent else None
            parts: tuple[Part, ...] | None = (
                None if ids is None else (Part(loader, event.data["epoch"], None, len(ids)),)
            )
        else:
            batches = [recent[place].data for place in used]
            parts = tuple(Part(b["loader"], b["epoch"], b["index"], len(b["ids"])) for b in batches)
            del recent[: used[-1] + 1 if used else 0]
        updates.append(Update(event.step, parts))
        seqs.append(event.seq)
        t_ns.append(event.t_ns)
        all_ids.extend(ids or ())
    return Trained(tuple(updates), seqs, t_ns, _packed(all_ids), has_read_aside)


def _packed(ids: Sequence[int]) -> Sequence[int]:
    """The same numbers in little room: there is one for each sample that was read."""
    if set(map(type, ids)) == {int}:
        with suppress(OverflowError):  # below zero, or beyond 4 bytes
            return array("I", ids)
    return tuple(ids)


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
    made = {rank: made for (rank, launch), made in history.each(trained).items() if launch == restart}
    if any(one.has_read_aside for one in made.values()):
        return None  # a thread reads ahead: what counts as used may depend on how far it was
    if len({one.updates for one in made.values()}) < 2:
        return None
    ends: Ends = {}
    for place, one in made.items():
        for seq, t_ns, update in zip(one.seqs, one.t_ns, one.updates, strict=True):
            if update.parts and (last := update.parts[-1].number) is not None:
                ends.setdefault(update.step, {})[place] = (t_ns, seq, last)
    for by_rank in ends.values():  # of two numbers that are equally usual the one that came first counts
        in_time = sorted(by_rank.items(), key=lambda item: (item[1][0], item[0]))
        by_rank.clear()
        by_rank.update(in_time)
    advances = _advances(ends)
    for step, by_rank in sorted(ends.items()):
        numbers = {rank: number for rank, (_, _, number) in by_rank.items()}
        if len(set(numbers.values())) < 2:
            continue
        odd = minority(numbers) or _unusual(advances, step, numbers)
        rank = odd[0] if odd else None
        where = min(by_rank) if rank is None else rank
        at = history.line(where, restart, by_rank[where][1])
        return Shift(rank=rank, step=step, at=at, numbers={f"rank {r}": n for r, n in sorted(numbers.items())})
    return None


def _advances(ends: Ends) -> dict[tuple[int, int], int]:
    """(rank, step) -> how many batches it went on; from the start of a pass, if the one before ended meanwhile."""
    found: dict[tuple[int, int], int] = {}
    last: dict[int, int] = {}
    for step, by_rank in sorted(ends.items()):
        for rank, (_, _, number) in by_rank.items():
            before = last.get(rank, -1)
            found[rank, step] = number - before if number > before else number + 1
            last[rank] = number
    return found


def _unusual(advances: Mapping[tuple[int, int], int], step: int, ranks: Mapping[int, int]) -> tuple[int, ...]:
    """Of ranks that differ the one which alone went on by another number than updates do as a rule."""
    usual = Counter(advances.values()).most_common(1)[0][0]
    odd = tuple(rank for rank in sorted(ranks) if advances[rank, step] != usual)
    return odd if len(odd) < len(ranks) else ()
