"""Where the data loaders of the ranks part: one hands out fewer batches than another."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from harness.checks.records import failed_restarts
from harness.checks.same_loaders import same_loaders
from harness.checks.vote import minority
from harness.history import History
from harness.wire import Event, Kind


@dataclass(kw_only=True)
class Pass:
    """One rank's iteration over one loader.

    Attributes:
        handed: batches handed out so far.
        length: what the loader says of itself; None if it does not know.
        end: the event of its end; None if it did not come to one.
        last: its last event.
    """

    handed: int
    length: int | None
    end: Event | None
    last: Event


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
    for (loader, number), by_rank in sorted(
        passes.items(), key=lambda item: min(p.last.t_ns for p in item[1].values())
    ):
        if len(by_rank) < 2 or (counts := _disagreeing(by_rank, failed)) is None:
            continue
        odd = minority(counts)
        shortest = min(counts, key=lambda rank: (counts[rank], by_rank[rank].end is None, rank))
        rank = odd[0] if odd else shortest
        at = by_rank[rank].end or by_rank[shortest].end or by_rank[rank].last
        epoch = _epoch(by_rank[rank], number)
        return Parting(
            rank=rank,
            restart=restart,
            loader=loader,
            epoch=epoch,
            at=at,
            batches={f"rank {r}": _words(p) for r, p in sorted(by_rank.items())},
        )
    return None


def _epoch(one: Pass, number: int) -> int | None:
    epoch = one.last.data.get("epoch", number)
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
    feeding: set[int] = set()
    begun: Counter[tuple[int, int]] = Counter()
    fed: dict[int, int] = {}
    same = same_loaders(history, restart)
    for event in history.of((Kind.LOADER, Kind.BATCH, Kind.LOADER_END, Kind.UPDATE)):
        if event.restart != restart:
            continue
        if event.kind == Kind.UPDATE:
            if event.rank in fed:
                feeding.add(fed[event.rank])
            continue
        loader = same.get((event.rank, event.data["loader"]))
        if loader is None:
            continue  # its beginning is not on record
        if event.kind == Kind.LOADER:
            begun[event.rank, loader] += 1
            key = (loader, begun[event.rank, loader] - 1)
            passes.setdefault(key, {})[event.rank] = Pass(handed=0, length=event.data["length"], end=None, last=event)
            continue
        current = passes.get((loader, begun[event.rank, loader] - 1), {}).get(event.rank)
        if current is None:
            continue
        current.last = event
        if event.kind == Kind.BATCH:
            fed[event.rank] = loader
            current.handed += 1
        else:
            current.end, current.handed = event, event.data["batches"]
    return {key: by_rank for key, by_rank in passes.items() if not feeding or key[0] in feeding}
