"""One sample of a rank's batch has wrong values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from harness.faults.batch import BatchFault, Reading, unchanged
from harness.wire import Event


@dataclass(frozen=True, kw_only=True)
class CorruptSample(BatchFault):
    """The sample's floating-point values x become factor * (x + 1), so that zeros change too; each of its integers
    becomes the next higher one that its tensor holds, and the highest the lowest: a wrong label or token, and never one
    that is out of range. Booleans, such as masks, stay.

    A sample is one index of each tensor's first dimension.

    Attributes:
        sample: which of the batch, from 0.
        factor: what floating-point values are multiplied by.
    """

    certifies: ClassVar = "one sample with wrong values is found in the update that it first spoils"
    does_not_certify: ClassVar = "which rank and sample it was: a gradient is a sum over all of them"
    may_be_masked: ClassVar = True  # a token of a sequence that has no target
    drawn: ClassVar = {"sample": (0, 1), "factor": (-1.0, 1000.0)}

    kind: Literal["corrupt_sample"] = "corrupt_sample"
    sample: int = 0
    factor: float = 1000.0

    def problems(self) -> list[tuple[str, str]]:
        found = []
        if self.sample < 0:
            found.append(("sample", "must be at least 0: the samples of a batch count from 0"))
        if not math.isfinite(self.factor) or self.factor == 0:
            found.append(("factor", "must be a finite number other than 0; for values that are none use nan_batch"))
        return found

    def read(self, reading: Reading) -> Any:
        return reading.changed(self._corrupt)

    def _corrupt(self, tensor: Any) -> Any:
        if tensor.dim() == 0 or self.sample >= len(tensor) or not tensor.numel():
            return tensor
        values = tensor.clone()
        if tensor.is_floating_point():
            values[self.sample] = self.factor * (values[self.sample] + 1)
        elif "bool" not in str(tensor.dtype):
            distinct, indices = tensor.unique(return_inverse=True)
            values[self.sample] = distinct[(indices[self.sample] + 1) % len(distinct)]
        return values

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        return unchanged(fired, after)
