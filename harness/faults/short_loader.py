"""A rank's data loader hands out fewer batches than its peers'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from harness.faults.base import LoaderFault
from harness.wire import Event, Kind


@dataclass(frozen=True, kw_only=True)
class ShortLoader(LoaderFault):
    """One epoch of the rank's DataLoader ends early; ``len(loader)`` still says the full length.

    So ends a data set that filters while it reads.

    Attributes:
        batches: how many are left out; a loader of fewer hands out nothing.
    """

    level: ClassVar = "data"
    places: ClassVar = frozenset({"epoch"})
    certifies: ClassVar = "loaders of unequal length are found where ranks part, with each rank's length"
    does_not_certify: ClassVar = "that uneven inputs are handled: unless the script does so, the longer ranks wait"
    drawn: ClassVar = {"batches": (1, 2)}

    kind: Literal["short_loader"] = "short_loader"
    batches: int = 1

    def problems(self) -> list[tuple[str, str]]:
        return [] if self.batches >= 1 else [("batches", "must be at least 1: it is how many are left out")]

    def length(self, batches: int) -> int:
        return max(0, batches - self.batches)

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        epoch, full = fired.data["epoch"], fired.data["length"]
        if full == 0:
            return f"the loader of epoch {epoch} was empty at {fired.where}: there was no batch to leave out"
        ends = [e for e in after if e.kind == Kind.LOADER_END and e.data["epoch"] == epoch]
        if not ends:
            return f"the loader of epoch {epoch} did not come to an end after {fired.where}"
        if all(e.data["batches"] != self.length(full) for e in ends):
            seen = ends[0]
            return f"the loader of epoch {epoch} handed out {seen.data['batches']} of {full} batches at {seen.where}"
        return None
