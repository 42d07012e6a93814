"""A rank does not take part in one save."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from harness.faults.base import Finding
from harness.faults.work import LeavesOut, WorkPlace
from harness.wire import Kind


@dataclass(frozen=True, kw_only=True)
class SkipSave(LeavesOut):
    """The rank's ``CheckpointStore.save()`` or ``async_save()`` returns at once as if it were done; the others save.

    With ``phase = "save"`` and ``hit`` it is the k-th save.
    """

    places: ClassVar = frozenset({"step", "phase"})
    certifies: ClassVar = "a save that one rank stays away from never passes for done, and that rank is named"
    does_not_certify: ClassVar = "anything of checkpoints that other code saves: torch.save is not left out"
    at_stake: ClassVar = ("CollectivesAgree",)
    acts_in: ClassVar[WorkPlace] = "save"
    kind_of_it: ClassVar = Kind.SAVE_START

    kind: Literal["skip_save"] = "skip_save"

    @property
    def findings(self) -> tuple[Finding, ...]:
        return (Finding(guarantee="CollectivesAgree", names_rank=True, names_step=True),)

    @property
    def may_end_it_first(self) -> bool:
        return True  # after the last save the rank leaves, and the others wait for its vote
