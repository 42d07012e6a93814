"""How much a night may do: so many runs, or so much time. A run that does not fit any more is not begun."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic

FIRST_GUESS_S = 5.0  # of how long a run takes, while none has ended


@dataclass
class Budget:
    """What is left of a night.

    Attributes:
        num_runs: how many plans at most; None: as many as fit in the time.
        duration_s: how long at most, from now; None: as long as the runs take.
        clock: seconds, growing.
    """

    num_runs: int | None = None
    duration_s: float | None = None
    clock: Callable[[], float] = monotonic
    took_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.started_s = self.clock()

    @property
    def elapsed_s(self) -> float:
        return self.clock() - self.started_s

    @property
    def left_s(self) -> float | None:
        """Seconds left; None if the time is not bounded."""
        return None if self.duration_s is None else max(0.0, self.duration_s - self.elapsed_s)

    def ended(self, took_s: float) -> None:
        """A run has taken so long."""
        self.took_s.append(took_s)

    def fits(self, num_begun: int) -> bool:
        """Whether one more run may begin: of twenty runs nineteen are no longer than what is left."""
        if self.num_runs is not None and num_begun >= self.num_runs:
            return False
        return self.left_s is None or self.left_s >= self.long_run_s

    @property
    def long_run_s(self) -> float:
        ordered = sorted(self.took_s)
        return ordered[int(0.95 * len(ordered))] if ordered else FIRST_GUESS_S


def numbers(shard: int, num_shards: int) -> Iterator[int]:
    """The numbers of the plans of one shard, of ``num_shards`` that are counted from 1."""
    number = shard - 1
    while True:
        yield number
        number += num_shards
