"""A rank's gradients overflow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from harness.faults.base import UNLIKE_THE_BASELINE, Finding, effect_of
from harness.faults.work import Gradient, Work, WorkFault, WorkPlace
from harness.wire import Event


@dataclass(frozen=True, kw_only=True)
class Overflow(WorkFault):
    """One backward of the rank ends with gradients that are not finite, before anything unscales or clips them.

    ``reduced``: after the reduction, on this rank alone: its gradient scaler skips the update and no other does. A
    backward in ``no_sync`` reduces nothing, and what it leaves is carried to all ranks by the next that does.
    ``local``: before it, as a loss that overflows: DDP's sum carries it to all ranks, and they skip together.

    Attributes:
        gradient: reduced (this rank's gradients, after DDP's reduction) or local (before it).
    """

    certifies: ClassVar = (
        "whether ranks skip an overflowed update together: one that skips alone is found, with the update"
    )
    does_not_certify: ClassVar = "that the scale finds back to where it was: it takes the updates that it takes"
    at_stake: ClassVar = ("ReplicasAgree", "EndsLikeBaseline", "ReplayIdentical")
    acts_in: ClassVar[WorkPlace] = "backward"

    kind: Literal["overflow"] = "overflow"
    gradient: Gradient = "reduced"

    @property
    def findings(self) -> tuple[Finding, ...]:
        if self.gradient == "local":  # DDP carries it to all ranks
            return UNLIKE_THE_BASELINE
        return super().findings

    def replace(self, work: Work) -> Any:
        return work.do_with_overflow(self.gradient)

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        effect = effect_of(fired, after)
        if effect is None:
            return f"nothing is on record of what the backward at {fired.where} came to"
        if not effect["gradients"]:
            return f"no gradient overflowed by it at {fired.where}: there is none, or it was not finite already"
        return None
