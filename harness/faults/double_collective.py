"""A rank sends one collective twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from harness.faults.base import Call, CollectiveFault, missing_collective
from harness.wire import Event


@dataclass(frozen=True, kw_only=True)
class DoubleCollective(CollectiveFault):
    """When the collective is done the rank sends it once more, with the same tensors and what they hold by then.

    A retry that did not know that the first try had come through; what was summed is summed again.
    """

    level: ClassVar = "communication"
    places: ClassVar = frozenset({"step", "phase", "collective"})
    certifies: ClassVar = "a collective that one rank sends twice is found, with rank, step and operation"
    does_not_certify: ClassVar = "that the stack itself notices: with equal shapes it does not"

    kind: Literal["double_collective"] = "double_collective"

    def replace(self, call: Call) -> Any:
        return call.issue_twice()

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        return missing_collective("extra", fired, after)
