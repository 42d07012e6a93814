"""Whose gradients a scenario compares with those of float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from harness.faults.base import FORBID_EXTRA


@dataclass(frozen=True, kw_only=True)
class Gradient:
    """Whose gradients are compared with those that the same samples have in float64, in one process.

    Attributes:
        losses: path (from this file's folder) of a Python file with losses(model, batch): for each loss head the sum
            over its targets, their number, and a weight (1 if left out). model is the script's, without DDP, and batch
            what its loader gave.
        updates: the steps whose gradients are looked at; left out: the first two of each launch.
        tolerance: largest relative difference; the default is for float32.
        clip_norm: the norm that the script clips its gradients to; left out: it does not clip.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = FORBID_EXTRA

    losses: Annotated[str, Field(min_length=1)]
    updates: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)] | None = None
    tolerance: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = 1e-4
    clip_norm: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
