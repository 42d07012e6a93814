"""A rank clips gradients that are still scaled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from harness.faults.work import Work, WorkFault, WorkPlace, not_left_out
from harness.wire import Event


@dataclass(frozen=True, kw_only=True)
class SkipUnscale(WorkFault):
    """The rank's ``GradScaler.unscale_()`` does nothing once, as where it was forgotten before clipping: the norm that
    is clipped is that of the scale. The scaler's ``step()`` then unscales what is left, as ever.

    A script that never calls it has nothing to leave out.
    """

    certifies: ClassVar = "a rank that clips scaled gradients is found, with the first update after which it parted"
    does_not_certify: ClassVar = (
        "that all ranks unscale before they clip: what all do alike shows in the baseline alone"
    )
    acts_in: ClassVar[WorkPlace] = "unscale"

    kind: Literal["skip_unscale"] = "skip_unscale"

    def replace(self, work: Work) -> Any:
        return work.leave_out()

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        return not_left_out(fired, after)
