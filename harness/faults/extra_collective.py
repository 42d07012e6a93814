"""A rank issues one collective more than the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from harness.faults.base import Call, CollectiveFault, missing_collective, numel_problems
from harness.wire import Event


@dataclass(frozen=True, kw_only=True)
class ExtraCollective(CollectiveFault):
    """Before the collective the rank sends another on a scratch tensor of zeros, and waits for it: a broadcast
    before a broadcast, else an all-reduce (sum), and that is what the record says.

    With the collective's own size the ranks pair up across calls. Another size is a mismatch of shapes, which gloo
    answers by an abort or a timeout.

    Attributes:
        numel: number of elements of the scratch tensor; left out: as many as the collective has.
    """

    level: ClassVar = "communication"
    places: ClassVar = frozenset({"step", "phase", "collective"})
    certifies: ClassVar = (
        "an extra collective is found, with rank, step and operation, also where the stack is silent; between two "
        "ranks that load and start again, without the rank unless it counts its calls in its last words"
    )
    does_not_certify: ClassVar = "that the stack itself notices: with equal shapes it does not"
    drawn: ClassVar = {"numel": (None, 1, 7)}

    kind: Literal["extra_collective"] = "extra_collective"
    numel: int | None = None

    def problems(self) -> list[tuple[str, str]]:
        return numel_problems(self.numel)

    def replace(self, call: Call) -> Any:
        call.issue_like(self.numel)
        return call.issue()

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        return missing_collective("extra", fired, after, numel=self.numel)
