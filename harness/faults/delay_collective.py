"""A rank sends one collective late."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from harness.faults.base import IN_TIME, Call, CollectiveFault, Finding, effect_of, not_a_duration
from harness.wire import Event


@dataclass(frozen=True, kw_only=True)
class DelayCollective(CollectiveFault):
    """The collective is sent ``duration_s`` after the script asked for it, as over a slow or a lossy network.

    Attributes:
        duration_s: how long the rank waits, in seconds; above the collective timeout the other ranks give up first.
    """

    level: ClassVar = "communication"
    places: ClassVar = frozenset({"step", "phase", "collective"})
    certifies: ClassVar = "a delay shorter than the timeout changes nothing; a longer one names the rank that was late"
    does_not_certify: ClassVar = "that the network itself bridges a loss: nothing is lost here, it is only sent late"
    at_stake: ClassVar = IN_TIME

    drawn: ClassVar = {"duration_s": (0.05, 0.3)}

    kind: Literal["delay_collective"] = "delay_collective"
    duration_s: float

    def problems(self) -> list[tuple[str, str]]:
        return not_a_duration("duration_s", self.duration_s)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return ()

    def replace(self, call: Call) -> Any:
        started_s = time.monotonic()
        time.sleep(self.duration_s)
        call.tell(waited_s=time.monotonic() - started_s)
        return call.issue()

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        if not after:
            return None  # it was ended while it waited
        effect = effect_of(fired, after)
        if effect is None:
            return f"the process went on at {after[0].where}, and the delay had not ended"
        if effect["waited_s"] < self.duration_s:
            return f"the collective at {fired.where} was {effect['waited_s']:.3f} s late, not {self.duration_s:g}"
        return None
