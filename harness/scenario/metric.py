"""What a script reports of its evaluations, and what is true of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.faults.base import FORBID_EXTRA


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number that the script prints once for each evaluation, and how to find the true one.

    Attributes:
        reported: a regular expression with one group, which is the number; searched in what rank 0 prints.
        reference: path of a Python file (from this file's folder) with metric(model, dataset), which returns the true
            number of the whole data set, or None for a data set that it is not about. Rank 0 calls it after each
            evaluation, with the model in evaluation mode and without gradients; it must not communicate.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = FORBID_EXTRA

    reported: str
    reference: str
