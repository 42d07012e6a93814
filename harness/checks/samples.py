"""The samples of the updates that count, and which of them are used twice in one pass over the data.

There is one id for each sample that was ever read: they stay in the arrays in which the view keeps them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from harness.checks.batches import Part, trained
from harness.checks.same_loaders import same_loaders
from harness.history import History
from harness.wire import Event, Kind

DENSE = 64  # bytes of a map by id that a sample may take, before a set of ids takes less room


class Use(NamedTuple):
    """One update that counts.

    Attributes:
        begin: where its sample ids begin among all of its process.
        parts: None if its sample ids are not on record.
    """

    rank: int
    restart: int
    step: int
    seq: int
    t_ns: int
    begin: int
    parts: tuple[Part, ...] | None

    @property
    def num_samples(self) -> int:
        return sum(part.samples for part in self.parts or ())

    def event(self, history: History) -> Event:
        return history.line(self.rank, self.restart, self.seq)

    def ids(self, history: History) -> list[int]:
        """Its sample ids, in order."""
        return list(history.each(trained)[self.rank, self.restart].ids[self.begin : self.begin + self.num_samples])


def counted(history: History) -> Iterator[Use]:
    """By rank and step: of an update that was done again the one of the highest restart, there the first."""
    restarts: dict[int, list[int]] = {}
    for rank, restart in sorted(history.each(trained)):
        restarts.setdefault(rank, []).append(restart)
    for rank, launches in restarts.items():
        line: dict[int, Use] = {}
        for restart in launches:
            line |= _of_process(history, rank, restart)
        for step in sorted(line):
            yield line[step]


def _of_process(history: History, rank: int, restart: int) -> dict[int, Use]:
    made, begin = history.each(trained)[rank, restart], 0
    found: dict[int, Use] = {}
    for (step, parts), seq, t_ns in zip(made.updates, made.seqs, made.t_ns, strict=True):
        if step not in found:
            found[step] = Use(rank, restart, step, seq, t_ns, begin, parts)
        for part in parts or ():
            begin += part.samples
    return found


@dataclass(frozen=True, kw_only=True)
class Again:
    """A sample that is used a second time in its epoch, and not as padding."""

    sample: int
    epoch: object
    first: Use
    again: Use


@dataclass
class _Pass:
    """One pass over the data, by all ranks together or by one of them.

    Attributes:
        begun: when it was first used: (t_ns, rank, line, place in the update).
        runs: (rank, restart, begin, end) of sample ids that stand one after the other.
    """

    begun: tuple[int, int, int, int] = (2**63, 0, 0, 0)
    last_step: int = 0
    runs: list[tuple[int, int, int, int]] = field(default_factory=list)

    def add(self, use: Use, place: int, begin: int, end: int) -> None:
        self.begun = min(self.begun, (use.t_ns, use.rank, use.seq, place))
        self.last_step = max(self.last_step, use.step)
        rank, restart, first, until = self.runs[-1] if self.runs else (-1, -1, 0, 0)
        if (rank, restart, until) == (use.rank, use.restart, begin):
            self.runs[-1] = (rank, restart, first, end)
        else:
            self.runs.append((use.rank, use.restart, begin, end))


Key = tuple[int | None, object, int | None]  # loader, epoch, the rank if ids are numbers within its own part


def used_again(history: History, *, is_vouched_for: bool) -> Again | None:
    """The first sample that is used twice in a pass, but for padding: a sampler repeats up to W - 1 at the end.

    Args:
        is_vouched_for: the fault-free run used the same samples: a sampler without epochs counts anew after a restart.
    """
    keys = _Keys(history)
    passes: dict[Key, _Pass] = {}
    for use in counted(history):
        for place, (key, begin, end) in enumerate(keys.of(use)):
            if (one := passes.get(key)) is None:
                one = passes[key] = _Pass()
            one.add(use, place, begin, end)
    for key, one in sorted(passes.items(), key=lambda item: item[1].begun):
        if key[1] is None or key[0] in keys.repeating:
            continue
        if (twice := _repeated(_ids(history, one))) and (
            found := _beyond_padding(history, keys, key, one.last_step, twice, is_vouched_for)
        ):
            return found
    return None


class _Keys:
    """Which pass each part of an update belongs to.

    Attributes:
        repeating: loaders that never end, or give more than there is: they repeat samples by design.
    """

    def __init__(self, history: History) -> None:
        self._same = {restart: same_loaders(history, restart) for restart in range(history.restarts + 1)}
        loaders = history.of(Kind.LOADER)
        # Without a sampler that divides one data set among the ranks, ids may be numbers within a rank's own part.
        self._local = {self._loader_of(e) for e in loaders if not e.data.get("distributed", True)}
        self.repeating = {self._loader_of(e) for e in loaders if "samples" in e.data and e.data["length"] is None}

    def of(self, use: Use) -> Iterator[tuple[Key, int, int]]:
        """Of each part: its pass, and where its sample ids begin and end."""
        begin, same = use.begin, self._same[use.restart]
        for part in use.parts or ():
            loader = None if part.loader is None else same.get((use.rank, part.loader))
            yield (
                (loader, part.epoch, use.rank if loader in self._local else None),
                begin,
                begin + part.samples,
            )
            begin += part.samples

    def _loader_of(self, event: Event) -> int | None:
        return self._same[event.restart].get((event.rank, event.data["loader"]))


def _ids(history: History, one: _Pass) -> Sequence[int]:
    made = history.each(trained)
    found: array[int] | list[int] = array("I")
    for rank, restart, begin, end in one.runs:
        ids = made[rank, restart].ids[begin:end]
        if isinstance(found, array) and not isinstance(ids, array):
            found = list(found)
        found.extend(ids)
    return found


def _repeated(ids: Sequence[int]) -> set[int]:
    """The ids that stand there more than once."""
    again: set[int] = set()
    if isinstance(ids, array) and max(ids, default=0) < DENSE * len(ids):
        seen = bytearray(max(ids, default=0) + 1)
        for sample in ids:
            if seen[sample]:
                again.add(sample)
            seen[sample] = 1
        return again
    once: set[int] = set()
    for sample in ids:
        (again if sample in once else once).add(sample)
    return again


def _beyond_padding(
    history: History, keys: _Keys, key: Key, last_step: int, twice: set[int], is_vouched_for: bool
) -> Again | None:
    """The first of the samples that come twice which padding does not explain."""
    made = history.each(trained)
    uses: list[tuple[Use, list[int]]] = []
    for use in counted(history):
        ids = made[use.rank, use.restart].ids
        if mine := [i for k, begin, end in keys.of(use) if k == key for i in ids[begin:end] if i in twice]:
            uses.append((use, mine))
    first_use: dict[int, Use] = {}
    padding = 0
    for use, mine in sorted(uses, key=lambda one: (one[0].step, one[0].rank)):
        for sample in mine:
            if (first := first_use.get(sample)) is None:
                first_use[sample] = use
                continue
            if is_vouched_for and first.restart != use.restart:
                continue
            padding += 1
            if use.step != last_step or padding >= history.plan.ranks:
                return Again(sample=sample, epoch=key[1], first=first, again=use)
    return None
