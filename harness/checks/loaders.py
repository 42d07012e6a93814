"""Where the data loaders of the ranks part: one hands out fewer batches than another."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from harness.checks.records import failed_restarts
from harness.checks.same_loaders import same_loaders
from harness.checks.vote import minority
from harness.events import Process, view
from harness.history import History
from harness.wire import Event, Kind


class Pass(NamedTuple):
    """One rank's iteration over one loader.

    Attributes:
        begin, end: the lines of its beginning and of its end; None if it did not come to one.
        handed: batches handed out so far.
        length: what the loader says of itself; None if it does not know.
        last: line and t_ns of its last event.
    """

    begin: int
    handed: int
    length: int | None
    end: int | None
    last: tuple[int, int]


class Read(NamedTuple):
    """What one process read: its passes in the order in which they began, and the loaders that fed updates."""

    passes: tuple[Pass, ...]
    feeding: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class Parting:
    """The first pass in which ranks differ.

    Attributes:
        rank: the odd one by majority; between two ranks the one that ran out first.
        at: where it ran out.
        batches: per rank how many were handed out, in words.
    """

    rank: int
    restart: int
    loader: int
    epoch: int | None
    at: Event
    batches: dict[str, str]


def parting(history: History, restart: int) -> Parting | None:
    """The first disagreement among the loaders that feed updates; None if there is none.

    Evaluation may well be uneven: where no collective depends on it, ranks need not agree.
    """
    passes = _passes(history, restart)
    failed = restart in failed_restarts(history)
    for (loader, number), by_rank in sorted(passes.items(), key=lambda item: min(p.last[1] for p in item[1].values())):
        if len(by_rank) < 2 or (counts := _disagreeing(by_rank, failed)) is None:
            continue
        odd = minority(counts)
        shortest = min(counts, key=lambda rank: (counts[rank], by_rank[rank].end is None, rank))
        rank = odd[0] if odd else shortest
        ended = next((r for r in (rank, shortest) if by_rank[r].end is not None), None)
        last = history.line(rank, restart, by_rank[rank].last[0])
        return Parting(
            rank=rank,
            restart=restart,
            loader=loader,
            epoch=_epoch(last, number),
            at=last if ended is None else history.line(ended, restart, by_rank[ended].end or 0),
            batches={f"rank {r}": _words(p) for r, p in sorted(by_rank.items())},
        )
    return None


def _epoch(last: Event, number: int) -> int | None:
    epoch = last.data.get("epoch", number)
    return epoch if isinstance(epoch, int) else None


def _words(one: Pass) -> str:
    length = "" if one.length is None else f" of {one.length}"
    return f"{one.handed}{length} batches, " + ("then its end" if one.end is not None else "end not reached")


def _disagreeing(by_rank: dict[int, Pass], failed: bool) -> dict[int, int] | None:
    """Rank -> batches, if they cannot all have handed out the same number."""
    ended = {rank: p.handed for rank, p in by_rank.items() if p.end is not None}
    shortest = min(ended.values(), default=None)
    seen = {rank: ended.get(rank, p.handed) for rank, p in by_rank.items()}
    if shortest is not None and (len(set(ended.values())) > 1 or max(seen.values()) > shortest):
        return {rank: max(count, shortest) if rank not in ended else count for rank, count in seen.items()}
    if not failed:
        return None
    # The run broke off: what a loader says of its length is the best there is.
    expected = {r: ended.get(r, p.length) for r, p in by_rank.items()}
    known = {rank: count for rank, count in expected.items() if count is not None}
    return known if len(known) > 1 and len(set(known.values())) > 1 else None


def _passes(history: History, restart: int) -> dict[tuple[int, int], dict[int, Pass]]:
    """(loader, number of the pass) -> rank -> what was seen of it, for the loaders that feed updates."""
    passes: dict[tuple[int, int], dict[int, Pass]] = {}
    begun: Counter[tuple[int, int]] = Counter()
    same = same_loaders(history, restart)
    read = {rank: made for (rank, launch), made in history.each(_read).items() if launch == restart}
    seen = {(rank, one.begin): one for rank, made in read.items() for one in made.passes}
    for event in history.of(Kind.LOADER, restart=restart):
        loader = same[event.rank, event.data["loader"]]
        passes.setdefault((loader, begun[event.rank, loader]), {})[event.rank] = seen[event.rank, event.seq]
        begun[event.rank, loader] += 1
    feeding = {same[rank, loader] for rank, made in read.items() for loader in made.feeding}
    return {key: by_rank for key, by_rank in passes.items() if not feeding or key[0] in feeding}


@view
def _read(process: Process) -> Read:
    begun: list[Event] = []
    handed: list[int] = []  # of each pass, as all of the following
    ends: list[int | None] = []
    lasts: list[Event] = []
    current: dict[int, int] = {}  # loader -> its pass
    fed: int | None = None  # the loader of the batch that was read last
    feeding: set[int] = set()
    for event in process.of(Kind.LOADER, Kind.BATCH, Kind.LOADER_END, Kind.UPDATE):
        if event.kind == Kind.UPDATE:
            if fed is not None:
                feeding.add(fed)
            continue
        loader = event.data["loader"]
        if event.kind == Kind.LOADER:
            current[loader] = len(begun)
            begun.append(event)
            handed.append(0)
            ends.append(None)
            lasts.append(event)
            continue
        if (place := current.get(loader)) is None:
            continue  # its beginning is not on record
        lasts[place] = event
        if event.kind == Kind.BATCH:
            fed = loader
            handed[place] += 1
        else:
            ends[place], handed[place] = event.seq, event.data["batches"]
    passes = (
        Pass(first.seq, count, first.data["length"], end, (last.seq, last.t_ns))
        for first, count, end, last in zip(begun, handed, ends, lasts, strict=True)
    )
    return Read(tuple(passes), frozenset(feeding))
