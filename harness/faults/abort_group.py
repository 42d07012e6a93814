"""A rank's connections to its peers end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from harness.faults.base import RESUMED, Call, CollectiveFault, Ends, Finding, effect_of
from harness.wire import Event, Kind


@dataclass(frozen=True, kw_only=True)
class AbortGroup(CollectiveFault):
    """Before the collective is sent the rank's communication is aborted: with gloo all TCP connections of the process
    are shut down, but for those of the ranks' store, as if its network failed; with NCCL the group's communicators are.
    No process ends by it: this collective fails, on this rank and, as soon as they notice, on all others.
    """

    level: ClassVar = "communication"
    places: ClassVar = frozenset({"step", "phase", "collective"})
    certifies: ClassVar = (
        "the job survives the loss of its connections: all ranks fail in bounded time, and start again"
    )
    does_not_certify: ClassVar = (
        "whose connections they were: all ranks find them closed, nothing on record tells, and nobody is accused"
    )

    at_stake: ClassVar = RESUMED

    kind: Literal["abort_group"] = "abort_group"

    @property
    def ends_launch(self) -> Ends:
        return "always"

    @property
    def findings(self) -> tuple[Finding, ...]:
        return ()

    def replace(self, call: Call) -> Any:
        return call.issue_aborted()

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        effect = effect_of(fired, after)
        if effect is None:
            return f"nothing is on record of what was aborted at {fired.where}"
        if not effect["connections"] and not effect["communicators"]:
            return f"there was no connection to a peer at {fired.where}"
        made = next((event for event in after if event.kind == Kind.UPDATE), None)
        return None if made is None else f"the process went on without them: update {made.step} at {made.where}"
