"""A process ends at once by a signal."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from harness.faults.base import Fault, PointFault
from harness.wire import Event, Kind

Signal = Literal["SIGKILL", "SIGTERM", "SIGSEGV", "SIGABRT", "SIGINT", "SIGHUP", "SIGBUS", "SIGFPE"]


@dataclass(frozen=True, kw_only=True)
class Kill(PointFault):
    """The rank sends itself ``signal`` and takes no further step: the kernel ends it as it ends any other process."""

    level: ClassVar = "process"
    places: ClassVar = frozenset({"step", "phase", "failpoint", "collective"})
    certifies: ClassVar = "the job survives the death of a process at this very point"
    does_not_certify: ClassVar = "survival of a power cut: what the process wrote stays in the page cache"

    kind: Literal["kill"] = "kill"
    signal: Signal = "SIGKILL"

    @property
    def ends_rank(self) -> bool:
        return True

    def fire(self) -> None:
        os.kill(os.getpid(), signal.Signals[self.signal])

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        return work_after(self, after)


def work_after(fault: Fault, after: Sequence[Event]) -> str | None:
    """None if the process did no more work after the fault, else the event that should not be there.

    Its last words (a signal seen, an exception leaving, the exit) are no work.
    """
    for event in after:
        if event.kind not in (Kind.SIGNAL, Kind.EXCEPTION, Kind.EXIT):
            return f"the process went on after {fault.kind}: {event.kind} at {event.where}"
    return None
