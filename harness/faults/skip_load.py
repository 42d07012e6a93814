"""A rank does not take part in one load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from harness.faults.base import Finding
from harness.faults.work import LeavesOut, WorkPlace
from harness.wire import Kind


@dataclass(frozen=True, kw_only=True)
class SkipLoad(LeavesOut):
    """The rank's ``CheckpointStore.load()`` returns at once, and says that there is no checkpoint; the others load.

    Its place is ``phase = "load"``, with the restart at which it loads.
    """

    places: ClassVar = frozenset({"phase"})
    certifies: ClassVar = "ranks never go on from different states, and the one that loaded nothing is named"
    does_not_certify: ClassVar = "anything of checkpoints that other code loads: torch.load is not left out"
    at_stake: ClassVar = ("CollectivesAgree",)
    acts_in: ClassVar[WorkPlace] = "load"
    kind_of_it: ClassVar = Kind.LOAD

    kind: Literal["skip_load"] = "skip_load"

    @property
    def findings(self) -> tuple[Finding, ...]:
        return (Finding(guarantee="CollectivesAgree", names_rank=True),)
