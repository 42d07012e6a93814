"""Where a fault acts, in one word: what coverage is counted by, and what a person is told."""

from __future__ import annotations

from harness.chaos.job import Ground
from harness.checkpoint.points import FAILPOINTS
from harness.faults import Fault
from harness.faults.base import LoaderFault
from harness.faults.batch import BatchFault
from harness.faults.work import WorkFault


def phase_of(fault: Fault, ground: Ground) -> str:
    """The phase in which the fault acts; ``unscale`` of a gradient scaler stands for itself."""
    at = fault.at
    if at.phase is not None:
        return at.phase
    if at.failpoint is not None:
        name = at.failpoint.partition(":")[0]
        return FAILPOINTS[name].during if name in FAILPOINTS else "save"
    if isinstance(fault, WorkFault):
        return fault.acts_in
    if isinstance(fault, BatchFault | LoaderFault):
        return "load_batch"
    if at.collective is not None and at.step is not None:
        rank = fault.targets(ground.job.ranks)[0]
        return ground.phase_of_collective(rank, at.step, at.collective) or "backward"
    return "any"
