"""A process ends in the middle of writing a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from harness.faults.base import WriteFault, work_after
from harness.wire import Event


@dataclass(frozen=True, kw_only=True)
class Torn(WriteFault):
    """Of the write at ``at.failpoint`` a first part reaches the file, then the rank is killed by SIGKILL.

    Attributes:
        fraction: how much of the write reaches the file, from 0.0 (a file that is there and empty) to below 1.
    """

    level: ClassVar = "storage"
    places: ClassVar = frozenset({"step", "failpoint"})
    certifies: ClassVar = "a half-written file of a checkpoint is never taken for a whole one"
    does_not_certify: ClassVar = "what a power cut leaves behind: blocks that reach the disk in another order"
    drawn: ClassVar = {"fraction": (0.0, 0.1, 0.5, 0.99)}

    kind: Literal["torn"] = "torn"
    fraction: float = 0.5

    def problems(self) -> list[tuple[str, str]]:
        if not 0 <= self.fraction < 1:
            return [("fraction", "must be at least 0 and below 1: the whole write is no torn one")]
        return []

    @property
    def ends_rank(self) -> bool:
        return True

    def part(self, size_bytes: int) -> int:
        return int(size_bytes * self.fraction)

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        if not 0 <= fired.data["part_bytes"] < fired.data["size_bytes"]:
            return f"the write at {fired.where} was not torn: {fired.data['effect']}"
        return work_after(self, after)
