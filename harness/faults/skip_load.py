"""A rank does not take part in one load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from harness.faults.work import Work, WorkFault, WorkPlace, not_left_out
from harness.wire import Event, Kind


@dataclass(frozen=True, kw_only=True)
class SkipLoad(WorkFault):
    """The rank's ``CheckpointStore.load()`` returns at once, and says that there is no checkpoint; the others load.

    Its place is ``phase = "load"``, with the restart at which it loads.
    """

    places: ClassVar = frozenset({"phase"})
    certifies: ClassVar = "ranks never go on from different states, and the one that loaded nothing is named"
    does_not_certify: ClassVar = "anything of checkpoints that other code loads: torch.load is not left out"
    acts_in: ClassVar[WorkPlace] = "load"

    kind: Literal["skip_load"] = "skip_load"

    def replace(self, work: Work) -> Any:
        return work.leave_out()

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        for event in after:
            if event.kind == Kind.PHASE:
                break
            if event.kind == Kind.LOAD:
                return f"the rank took part in the load at {event.where}"
        return not_left_out(fired, after)
