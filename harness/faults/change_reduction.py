"""A rank reduces by another operation than its peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from harness.faults.base import Call, CollectiveFault, changed_from
from harness.wire import Event


@dataclass(frozen=True, kw_only=True)
class ChangeReduction(CollectiveFault):
    """The collective is sent with another reduce operation. No backend compares them: each rank applies its own to the
    part that it reduces, so that the result is a mixture, and often the same one on all ranks.

    Attributes:
        reduce_op: the operation that is sent instead.
    """

    level: ClassVar = "communication"
    places: ClassVar = frozenset({"step", "phase", "collective"})
    certifies: ClassVar = "a reduce operation that one rank has alone is found, with rank, step and operation"
    does_not_certify: ClassVar = (
        "that all ranks reduce by the right one: where all use it, nothing differs between them"
    )

    drawn: ClassVar = {"reduce_op": ("MIN", "MAX", "PRODUCT")}  # gloo has no AVG

    kind: Literal["change_reduction"] = "change_reduction"
    reduce_op: Literal["SUM", "AVG", "PRODUCT", "MIN", "MAX"] = "MAX"

    def acts_on(self, calls: Sequence[Sequence[Any]], number: int) -> bool:
        return calls[number - 1][1] not in (None, self.reduce_op)

    def replace(self, call: Call) -> Any:
        return call.issue_reduced_by(self.reduce_op)

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        return changed_from("reduce operation", fired, after)
