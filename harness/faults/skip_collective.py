"""A rank does not take part in one collective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from harness.faults.base import Call, CollectiveFault, missing_collective
from harness.wire import Event


@dataclass(frozen=True, kw_only=True)
class SkipCollective(CollectiveFault):
    """The rank goes on as if the collective were done, and sends nothing; its tensors stay as they were.

    With later collectives of the same shape the ranks pair up across steps and compute wrong sums in silence.
    """

    level: ClassVar = "communication"
    places: ClassVar = frozenset({"step", "phase", "collective"})
    certifies: ClassVar = (
        "a skipped collective is found, with rank, step and operation, also where the stack is silent or the rank "
        "fails at once by what it did not receive"
    )
    does_not_certify: ClassVar = "that the stack itself notices: with equal shapes it does not"

    kind: Literal["skip_collective"] = "skip_collective"

    def replace(self, call: Call) -> Any:
        return call.completed()

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        return missing_collective("skipped", fired, after)
