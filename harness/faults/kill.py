"""A process ends at once by a signal."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from harness.faults.base import PointFault, work_after
from harness.wire import Event, Kind

Signal = Literal["SIGKILL", "SIGTERM", "SIGSEGV", "SIGABRT", "SIGINT", "SIGHUP", "SIGBUS", "SIGFPE"]


@dataclass(frozen=True, kw_only=True)
class Kill(PointFault):
    """The rank sends itself ``signal`` and takes no further step: the kernel ends it as it ends any other process.

    Attributes:
        signal: the signal's name.
    """

    level: ClassVar = "process"
    places: ClassVar = frozenset({"step", "phase", "failpoint", "collective"})
    certifies: ClassVar = "the job survives the death of a process at this very point"
    does_not_certify: ClassVar = "survival of a power cut: what the process wrote stays in the page cache"

    kind: Literal["kill"] = "kill"
    signal: Signal = "SIGKILL"

    @property
    def ends_rank(self) -> bool:
        # Python makes a SIGINT an exception, which inside a save is the store's to handle, as that of ``raise`` is.
        return self.signal != "SIGINT" or self.at.failpoint is None

    def fire(self) -> None:
        os.kill(os.getpid(), signal.Signals[self.signal])

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        if self.signal == "SIGINT":
            after = [event for event in after if event.kind != Kind.SAVE_ERROR]  # said on its way out
        return work_after(self, after)
