"""A rank sends two collectives in the other order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from harness.faults.base import Call, CollectiveFault, Finding, effect_of
from harness.wire import Event


@dataclass(frozen=True, kw_only=True)
class SwapCollective(CollectiveFault):
    """The collective is sent right after the next one of its group. The script goes on in the meantime as if it were
    done: a call that is waited for at once could not come after another otherwise. What it brings comes late.
    """

    level: ClassVar = "communication"
    places: ClassVar = frozenset({"step", "phase", "collective"})
    certifies: ClassVar = "collectives in another order on one rank are found, with rank, step and both operations"
    does_not_certify: ClassVar = (
        "anything of two that are alike, from one line of the script: no record tells them apart"
    )
    at_stake: ClassVar = ("CollectivesAgree", "ReplicasAgree")

    kind: Literal["swap_collective"] = "swap_collective"

    @property
    def findings(self) -> tuple[Finding, ...]:
        # The script went on with what it had before the call that was put off.
        return (*super().findings, Finding(guarantee="ReplicasAgree"))

    @property
    def may_end_it_first(self) -> bool:
        return True

    def acts_on(self, calls: Sequence[Sequence[Any]], number: int) -> bool:
        return number < len(calls) and calls[number] != calls[number - 1]

    def replace(self, call: Call) -> Any:
        return call.issue_after_the_next()

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        if effect_of(fired, after) is None:
            return f"no other collective of its group came after {fired.where}: it was never sent"
        return None
