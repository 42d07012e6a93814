"""A rank clips gradients that are still scaled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from harness.faults.work import LeavesOut, WorkPlace


@dataclass(frozen=True, kw_only=True)
class SkipUnscale(LeavesOut):
    """The rank's ``GradScaler.unscale_()`` does nothing once, as where it was forgotten before clipping: the norm that
    is clipped is that of the scale. The scaler's ``step()`` then unscales what is left, as ever.

    A script that never calls it has nothing to leave out.
    """

    certifies: ClassVar = "a rank that clips scaled gradients is found, with the first update after which it parted"
    does_not_certify: ClassVar = (
        "that all ranks unscale before they clip: what all do alike shows in the baseline alone"
    )
    acts_in: ClassVar[WorkPlace] = "unscale"
    needs: ClassVar = frozenset({"scaler"})

    kind: Literal["skip_unscale"] = "skip_unscale"
