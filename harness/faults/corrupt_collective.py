"""A value is damaged on its way between ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from harness.faults.base import UNLIKE_THE_BASELINE, Call, CollectiveFault, Finding, Side
from harness.faults.flip_bit import MAX_BIT
from harness.faults.work import not_changed
from harness.wire import Event


@dataclass(frozen=True, kw_only=True)
class CorruptCollective(CollectiveFault):
    """One bit of one element is inverted: of what the rank sends, or of what it alone gets back.

    What was sent with a wrong bit is summed up, and all ranks have the same wrong value. A broadcast is sent by its
    root alone.

    Attributes:
        side: sent or received.
        index: which element, of all tensors in their order, flattened.
        bit: which bit of it, from 0, the lowest; of a float32 30 is the highest of the exponent and 31 the sign.
    """

    level: ClassVar = "communication"
    places: ClassVar = frozenset({"step", "phase", "collective"})
    certifies: ClassVar = (
        "a bit flipped in what one rank received is found, with rank and update; in what it sent, by the gradient"
    )
    does_not_certify: ClassVar = "which rank sent a wrong value: when it is summed up all ranks have it alike"
    at_stake: ClassVar = ("ReplicasAgree", "EndsLikeBaseline", "ReplayIdentical")

    drawn: ClassVar = {"index": (0, 1), "bit": (12, 22, 24, 31)}  # of float32

    kind: Literal["corrupt_collective"] = "corrupt_collective"
    side: Side = "received"
    index: int = 0
    bit: int = 0

    def problems(self) -> list[tuple[str, str]]:
        found = []
        if not 0 <= self.bit <= MAX_BIT:
            found.append(("bit", f"must be 0..{MAX_BIT}"))
        if self.index < 0:
            found.append(("index", "must be at least 0"))
        return found

    @property
    def findings(self) -> tuple[Finding, ...]:
        if self.side == "sent":
            return UNLIKE_THE_BASELINE
        alone = Finding(guarantee="ReplicasAgree", names_rank=True, names_step=True)
        # What it gets back elsewhere may be what it divides its loss by, say, and its gradient goes to all ranks.
        return (alone,) if self.at.phase == "backward" else (alone, *UNLIKE_THE_BASELINE)

    @property
    def may_vanish(self) -> bool:
        return True  # an optimizer that divides by the gradient's size may round a low bit away

    def acts_on(self, calls: Sequence[Sequence[Any]], number: int) -> bool:
        _, reduce_op, numel, dtype = calls[number - 1]
        return reduce_op is not None and self.index < numel and dtype == "float32"

    def replace(self, call: Call) -> Any:
        return call.issue_flipped(self.side, self.index, self.bit)

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        return not_changed(fired, after)
