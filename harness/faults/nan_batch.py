"""A batch of one rank is not a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

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
        return unchanged(fired, after)
