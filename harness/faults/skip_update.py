"""A rank does not make one update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from harness.faults.base import effect_of
from harness.faults.work import LeavesOut, WorkPlace
from harness.wire import Event, Kind


@dataclass(frozen=True, kw_only=True)
class SkipUpdate(LeavesOut):
    """The rank's ``optimizer.step()`` does nothing, and the script takes it for done: its count of steps goes on."""

    certifies: ClassVar = "a rank that misses an update is found, with the first update after which it is another one"
    does_not_certify: ClassVar = "anything of an update that all ranks skip alike: nothing differs between them then"
    acts_in: ClassVar[WorkPlace] = "optimizer_step"

    kind: Literal["skip_update"] = "skip_update"

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        effect = effect_of(fired, after)
        update = next((e for e in after if e.kind == Kind.UPDATE), None)
        if effect is not None and update is not None and update.data["params"] != effect["params"]:
            return f"the parameters changed in the update that should be skipped, at {update.where}"
        return super().missing_effect(fired, after)
