"""A rank is slow for a while."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from harness.faults.base import LastingFault, effects_of, not_a_duration
from harness.wire import Event, Kind


@dataclass(frozen=True, kw_only=True)
class Straggle(LastingFault):
    """On entering a phase the rank waits ``duration_s``, in each of ``updates`` successive updates.

    Attributes:
        duration_s: how long it waits each time, in seconds; above the collective timeout the other ranks give up.
        updates: how many updates are slow, from the one at which it fires.
    """

    level: ClassVar = "process"
    places: ClassVar = frozenset({"step", "phase"})
    certifies: ClassVar = "a slow rank changes nothing but time; one slower than the timeout is named"
    does_not_certify: ClassVar = "that anyone notices a slow rank that keeps within the timeout: all wait for it"

    drawn: ClassVar = {"duration_s": (0.05, 0.3), "updates": (1, 2)}

    kind: Literal["straggle"] = "straggle"
    duration_s: float
    updates: int = 1

    def problems(self) -> list[tuple[str, str]]:
        found = not_a_duration("duration_s", self.duration_s)
        if self.updates < 1:
            found.append(("updates", "must be at least 1"))
        return found

    def lasts(self) -> int:
        return self.updates

    def act(self) -> dict[str, float]:
        started_s = time.monotonic()
        time.sleep(self.duration_s)
        return {"waited_s": time.monotonic() - started_s}

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        waits = {event.step: event.data["waited_s"] for event in effects_of(fired, after)}
        for step in range(fired.step, fired.step + self.updates):
            entered = step == fired.step or any(_enters(e, step, fired.phase) for e in after)
            if not entered:
                return f"update {step} should be slow as well, and it was not made"
            if step not in waits:
                is_last = not after or _enters(after[-1], step, fired.phase)
                return None if is_last else f"the rank went on in update {step} without waiting"  # ended as it waited
            if waits[step] < self.duration_s:
                return f"the rank waited {waits[step]:.3f} s in update {step}, not {self.duration_s:g}"
        return None


def _enters(event: Event, step: int, phase: str) -> bool:
    return event.kind == Kind.PHASE and (event.step, event.phase) == (step, phase)
