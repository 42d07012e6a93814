"""A process ends by a signal, at once or after a grace period."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from harness.faults.base import PointFault, not_a_duration, work_after
from harness.faults.grace import kill_after
from harness.wire import Event, Kind

Signal = Literal["SIGKILL", "SIGTERM", "SIGSEGV", "SIGABRT", "SIGINT", "SIGHUP", "SIGBUS", "SIGFPE"]
ASKING = ("SIGTERM", "SIGINT", "SIGHUP")  # the signals that ask a process to end, and that it may answer in its own way
SLACK_S = 5.0  # ranks that one fault ends wait for each other between the record and the signal


@dataclass(frozen=True, kw_only=True)
class Kill(PointFault):
    """The rank sends itself ``signal`` and takes no further step: the kernel ends it as it ends any other process.

    With ``grace_s`` a script that handles the signal goes on: it may save and leave. After that time comes SIGKILL, as
    from a cluster that takes a machine back.

    Attributes:
        signal: the signal's name.
        grace_s: how long a script that handles the signal may live on, in seconds; left out: not at all.
    """

    level: ClassVar = "process"
    places: ClassVar = frozenset({"step", "phase", "failpoint", "collective"})
    certifies: ClassVar = "the job survives the death of a process at this very point"
    does_not_certify: ClassVar = "survival of a power cut: what the process wrote stays in the page cache"

    kind: Literal["kill"] = "kill"
    signal: Signal = "SIGKILL"
    grace_s: float | None = None

    def problems(self) -> list[tuple[str, str]]:
        if self.grace_s is None:
            return []
        if self.signal not in ASKING:
            return [("grace_s", f"{self.signal} asks for nothing; a grace period is for {', '.join(ASKING)}")]
        return not_a_duration("grace_s", self.grace_s)

    @property
    def ends_rank(self) -> bool:
        # Python makes a SIGINT an exception, which inside a save is the store's to handle, as that of ``raise`` is.
        return self.signal != "SIGINT" or self.at.failpoint is None

    def fire(self) -> None:
        if self.grace_s is not None:
            kill_after(self.grace_s)
        os.kill(os.getpid(), signal.Signals[self.signal])

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        if self.signal == "SIGINT":
            said = (Kind.SAVE_ERROR, Kind.LOAD_ERROR)  # on its way out
            after = [event for event in after if event.kind not in said]
        if self.grace_s is None:
            return work_after(self, after)
        lived_s = (after[-1].t_ns - fired.t_ns) / 1e9 if after else 0.0
        if lived_s > self.grace_s + SLACK_S:
            return (
                f"the process still worked {lived_s:.1f} s after {self.signal}: {after[-1].kind} at {after[-1].where}"
            )
        if after and after[-1].kind == Kind.EXIT and after[-1].data["code"] == 0:
            return f"the script came to its end in the grace period, with exit code 0, at {after[-1].where}"
        return None
