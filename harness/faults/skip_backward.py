"""A rank does not go backward once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from harness.faults.work import Work, WorkFault, WorkPlace, not_left_out
from harness.wire import Event, Kind


@dataclass(frozen=True, kw_only=True)
class SkipBackward(WorkFault):
    """The rank's ``backward()`` does nothing: it has no gradients, and what DDP sends meanwhile is missing.

    The update that follows works on what gradients there are: none, or those of the step before.
    """

    certifies: ClassVar = "gradients that are never sent are found, with rank, step and operation"
    does_not_certify: ClassVar = (
        "anything of a script that reduces its gradients after backward: it sends none, or old ones, in due form"
    )
    acts_in: ClassVar[WorkPlace] = "backward"

    kind: Literal["skip_backward"] = "skip_backward"

    def replace(self, work: Work) -> Any:
        return work.leave_out()

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        for event in after:
            if event.kind == Kind.PHASE:
                break
            if event.kind == Kind.COLLECTIVE:
                return f"{event.data['op']} was sent at {event.where} in the backward that should be skipped"
        return not_left_out(fired, after)
