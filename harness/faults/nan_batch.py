"""A batch of one rank is not a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from harness.faults.base import effect_of
from harness.faults.batch import BatchFault, Reading, unchanged
from harness.wire import Event


@dataclass(frozen=True, kw_only=True)
class NanBatch(BatchFault):
    """Every value of the batch's floating-point tensors becomes NaN; integers, such as tokens and labels, stay."""

    certifies: ClassVar = "values that are not a number are found in the update that they first spoil"
    does_not_certify: ClassVar = "which rank read them: reduced gradients are NaN on all ranks at once"
    needs: ClassVar = frozenset({"float_batches"})

    kind: Literal["nan_batch"] = "nan_batch"

    def read(self, reading: Reading) -> Any:
        return reading.changed(lambda t: t.new_full(t.shape, float("nan")) if t.is_floating_point() else t)

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        effect = effect_of(fired, after)
        if effect is not None and effect["tensors"] and not effect["elements"]:
            return (
                f"no value became NaN at {fired.where}: none of the batch's {effect['tensors']} tensors has "
                "floating-point values; tokens and labels are integers, for which corrupt_sample is the fault"
            )
        return unchanged(fired, after)
