"""A rank waits for its data."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from harness.faults.base import IN_TIME, Ends, Finding, effect_of, not_a_duration
from harness.faults.batch import BatchFault, Reading, not_handed_out
from harness.wire import Event


@dataclass(frozen=True, kw_only=True)
class StalledRead(BatchFault):
    """The batch is handed out ``duration_s`` later than it was read, as from a slow disk or a lost connection.

    Attributes:
        duration_s: how long the read takes, in seconds; above the collective timeout the other ranks give up first.
    """

    certifies: ClassVar = (
        "a stall shorter than the timeout changes nothing; one that is longer names the rank that waited"
    )
    does_not_certify: ClassVar = "that loader workers, or a retry inside the data set, bridge a stall of their own"
    at_stake: ClassVar = IN_TIME
    drawn: ClassVar = {"duration_s": (0.05, 0.3)}  # below any collective timeout

    kind: Literal["stalled_read"] = "stalled_read"
    duration_s: float

    @property
    def ends_launch(self) -> Ends:
        return "maybe"  # if it takes longer than the others wait

    @property
    def findings(self) -> tuple[Finding, ...]:
        return ()

    def problems(self) -> list[tuple[str, str]]:
        return not_a_duration("duration_s", self.duration_s)

    def read(self, reading: Reading) -> Any:
        started_s = time.monotonic()
        time.sleep(self.duration_s)
        reading.tell(stalled_s=time.monotonic() - started_s)
        return reading.batch

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        if not after:
            return None  # it was ended while it waited
        effect = effect_of(fired, after)
        if effect is None:
            return f"the process went on at {after[0].where}, and the stall had not ended"
        if effect["stalled_s"] < self.duration_s:
            return f"the read at {fired.where} was stalled for {effect['stalled_s']:.3f} s, not {self.duration_s:g}"
        return not_handed_out(fired, after)
