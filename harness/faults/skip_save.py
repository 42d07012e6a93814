"""A rank does not take part in one save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from harness.faults.work import Work, WorkFault, WorkPlace, not_left_out
from harness.wire import Event, Kind


@dataclass(frozen=True, kw_only=True)
class SkipSave(WorkFault):
    """The rank's ``CheckpointStore.save()`` or ``async_save()`` returns at once as if it were done; the others save.

    With ``phase = "save"`` and ``hit`` it is the k-th save.
    """

    places: ClassVar = frozenset({"step", "phase"})
    certifies: ClassVar = "a save that one rank stays away from never passes for done, and that rank is named"
    does_not_certify: ClassVar = "anything of checkpoints that other code saves: torch.save is not left out"
    acts_in: ClassVar[WorkPlace] = "save"

    kind: Literal["skip_save"] = "skip_save"

    def replace(self, work: Work) -> Any:
        return work.leave_out()

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        for event in after:
            if event.kind == Kind.PHASE:
                break
            if event.kind == Kind.SAVE_START:
                return f"the rank took part in the save at {event.where}"
        return not_left_out(fired, after)
