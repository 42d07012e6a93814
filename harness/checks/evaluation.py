"""Which passes over a data loader were evaluations, and which samples they counted.

No event says so: the phases do. Where a batch is followed by a forward pass in evaluation mode, or without gradients,
the pass that it belongs to is one of evaluation, unless as many of its batches are trained on as well, as where a
teacher looks at the batch before the student.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from harness.checks.same_loaders import same_loaders
from harness.events import Process, view
from harness.history import History
from harness.wire import Event, Kind


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One rank's iteration over one loader.

    Attributes:
        begin: its first event, which says what the loader declares.
        end: the event of its end; None if it did not come to one.
        ids: the sample ids that it handed out, of what is no evaluation one at most; None if they are unknown.
        evaluated, trained: batches that were followed by a forward pass of that kind.
        step: the update after which it was evaluated.
    """

    begin: Event
    end: Event | None
    ids: list[int] | None
    evaluated: int
    trained: int
    step: int

    @property
    def is_evaluation(self) -> bool:
        return self.evaluated > self.trained

    @property
    def samples(self) -> int | None:
        """How many samples it is about, all ranks together."""
        return self.begin.data.get("samples")

    @property
    def is_whole(self) -> bool:
        """Whether this rank alone counted each sample once."""
        return self.samples is not None and self.ids is not None and sorted(self.ids) == [*range(self.samples)]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One evaluation by all ranks that took part.

    Attributes:
        passes: rank -> its pass; of ranks whose shard is empty too, if they began one.
        absent: ranks that began no such pass.
        samples: how many there are to count, ids 0 to that; None: nothing tells, or the same data set is trained on.
        padding: how many of them the sampler may repeat.
    """

    restart: int
    step: int
    passes: Mapping[int, Pass]
    absent: tuple[int, ...]
    samples: int | None
    padding: int

    @property
    def has_ended(self) -> bool:
        """Whether each pass came to its end: one that was left early may be about a part on purpose."""
        return all(one.end is not None for one in self.passes.values())

    @property
    def is_known(self) -> bool:
        return self.samples is not None and all(one.ids is not None for one in self.passes.values())

    @property
    def is_repeated_by_each_rank(self) -> bool:
        """Whether each rank counted all samples, by itself."""
        return all(one.is_whole for one in self.passes.values())

    @property
    def lost(self) -> list[int]:
        """The samples that no rank was handed."""
        return [] if self.is_repeated_by_each_rank else sorted(set(range(self.samples or 0)) - self.counted.keys())

    @property
    def counted(self) -> Counter[int]:
        """Sample id -> how often it was handed out."""
        return Counter(sample for one in self.passes.values() for sample in one.ids or ())


def evaluations(history: History) -> Iterator[Evaluation]:
    """Every evaluation that reads a data loader, in the order of restarts, loaders and passes."""
    by_place: dict[tuple[int, int, int], dict[int, Pass]] = {}
    trained_on: set[tuple[int, int, int | None]] = set()  # rank, restart, data set
    same_of = [same_loaders(history, restart) for restart in range(history.restarts + 1)]
    for rank in history.ranks:
        for restart, same in enumerate(same_of):
            begun: Counter[int] = Counter()
            for one in _passes(history, rank, restart):
                loader = same[rank, one.begin.data["loader"]]
                by_place.setdefault((restart, loader, begun[loader]), {})[rank] = one
                begun[loader] += 1
                if one.trained >= max(one.evaluated, 1):
                    trained_on.add((rank, restart, one.begin.data.get("data")))
    for (restart, _loader, _number), passes in sorted(by_place.items()):
        taking_part = {rank: one for rank, one in passes.items() if one.is_evaluation or not one.ids}
        if not any(one.is_evaluation for one in passes.values()):
            continue
        first = next(one for one in taking_part.values() if one.is_evaluation)
        is_shared = any((r, restart, one.begin.data.get("data")) in trained_on for r, one in taking_part.items())
        is_alike = len({one.samples for one in taking_part.values()}) == 1
        yield Evaluation(
            restart=restart,
            step=first.step,
            passes=taking_part,
            absent=tuple(rank for rank in history.ranks if rank not in taking_part),
            samples=first.samples if is_alike and not is_shared else None,
            padding=max(one.begin.data.get("padding", 0) for one in taking_part.values()),
        )


class Seen(NamedTuple):
    """One pass of one process; ``begin`` and ``end`` are lines, all else is as in ``Pass``."""

    loader: int
    begin: int
    end: int | None
    ids: tuple[int, ...] | None
    evaluated: int
    trained: int
    step: int


class Passes(NamedTuple):
    """The passes of one process, in the order in which they began; of those that are none of evaluation one id."""

    seen: tuple[Seen, ...]


@view
def _seen(process: Process) -> Passes:
    found: list[_Open] = []
    current: dict[int, _Open] = {}  # of each loader
    read: _Open | None = None  # whose batch was handed out last
    is_seen_by: set[str] = set()  # how that batch was used so far
    for event in process.of(Kind.LOADER, Kind.BATCH, Kind.LOADER_END, Kind.PHASE):
        if event.kind == Kind.PHASE:
            if read is None or event.phase in is_seen_by:
                continue
            if event.phase == "eval" and not is_seen_by:
                read.evaluated += 1
                read.step = event.step
            elif event.phase == "forward":
                read.trained += 1
            if event.phase in ("eval", "forward", "backward", "optimizer_step"):
                is_seen_by.add(event.phase)
            continue
        loader = event.data["loader"]
        if event.kind == Kind.LOADER:
            current[loader] = _Open(loader, event.seq)
            found.append(current[loader])
        elif (one := current.get(loader)) is None:
            continue
        elif event.kind == Kind.LOADER_END:
            one.end = event.seq
        else:
            ids = event.data["ids"]
            if ids is None:
                one.ids = None
            elif one.ids is not None:
                one.ids.extend(ids)
            read, is_seen_by = one, set()
    return Passes(tuple(one.closed() for one in found))


@dataclass
class _Open:
    """A pass that goes on."""

    loader: int
    begin: int
    end: int | None = None
    ids: list[int] | None = field(default_factory=list)
    evaluated: int = 0
    trained: int = 0
    step: int = 0

    def closed(self) -> Seen:
        is_evaluation = self.evaluated > self.trained
        ids = None if self.ids is None else tuple(self.ids if is_evaluation else self.ids[:1])
        return Seen(self.loader, self.begin, self.end, ids, self.evaluated, self.trained, self.step)


def _passes(history: History, rank: int, restart: int) -> list[Pass]:
    """The passes of one process, in the order in which they began; of those that are none of evaluation one id."""
    made = history.each(_seen).get((rank, restart))
    if made is None or not made.seen:
        return []
    lines = {e.seq: e for e in history.of((Kind.LOADER, Kind.LOADER_END), rank=rank, restart=restart)}
    return [
        Pass(
            begin=lines[one.begin],
            end=None if one.end is None else lines[one.end],
            ids=None if one.ids is None else [*one.ids],
            evaluated=one.evaluated,
            trained=one.trained,
            step=one.step,
        )
        for one in made.seen
    ]
