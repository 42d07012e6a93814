"""A rank sends one collective with another number of elements than its peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from harness.faults.base import Call, CollectiveFault, missing_collective, numel_problems
from harness.wire import Event, Kind


@dataclass(frozen=True, kw_only=True)
class ResizeCollective(CollectiveFault):
    """In place of the collective the rank sends one of ``numel`` elements, zeros; its own tensors stay as they were.

    On record it is the collective, skipped, and an extra one of the other size.

    Attributes:
        numel: number of elements that are sent instead.
    """

    level: ClassVar = "communication"
    places: ClassVar = frozenset({"step", "phase", "collective"})
    certifies: ClassVar = "a mismatch of shapes is found, with rank, step and operation, and ends in bounded time"
    does_not_certify: ClassVar = "what a backend computes from unequal shapes: each does something else"
    drawn: ClassVar = {"numel": (3, 1009)}  # 1 and 5 are what DDP sends when it lays out its buckets

    kind: Literal["resize_collective"] = "resize_collective"
    numel: int

    def problems(self) -> list[tuple[str, str]]:
        return numel_problems(self.numel)

    def replace(self, call: Call) -> Any:
        done = call.completed()
        call.issue_like(self.numel)
        return done

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        return (
            missing_collective("skipped", fired, after)
            or missing_collective("extra", fired, after, numel=self.numel)
            or self._same_size(after)
        )

    def _same_size(self, after: Sequence[Event]) -> str | None:
        replaced = next(e for e in after if e.kind == Kind.COLLECTIVE and e.data.get("faulted") == "skipped")
        if replaced.data["numel"] != self.numel:
            return None
        return f"the collective at {replaced.where} has {self.numel} elements without the fault: choose another numel"
