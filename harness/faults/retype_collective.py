"""A rank sends one collective in another dtype than its peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from harness.faults.base import Call, CollectiveFault, changed_from
from harness.wire import Event


@dataclass(frozen=True, kw_only=True)
class RetypeCollective(CollectiveFault):
    """The collective's tensors are sent as ``dtype``, and what comes back is converted: one rank without mixed
    precision.

    Of as many bytes an element the stack takes one for the other, and adds up bit patterns; of more or fewer it is a
    mismatch of sizes, which gloo answers by an abort or a timeout.

    Attributes:
        dtype: what is sent instead.
    """

    level: ClassVar = "communication"
    places: ClassVar = frozenset({"step", "phase", "collective"})
    certifies: ClassVar = "a mismatch of dtypes is found, with rank, step and operation, also where the stack is silent"
    does_not_certify: ClassVar = "what a backend computes from unequal types: each does something else"

    kind: Literal["retype_collective"] = "retype_collective"
    dtype: Literal["float16", "bfloat16", "float32", "float64", "int32", "int64", "uint8"]

    def acts_on(self, calls: Sequence[Sequence[Any]], number: int) -> bool:
        return calls[number - 1][3] not in (None, self.dtype)

    def replace(self, call: Call) -> Any:
        return call.issue_in(self.dtype)

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        return changed_from("dtype", fired, after)
