"""A process goes on living and gets nowhere."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, NoReturn

from harness.faults.base import RESUMED, PointFault, work_after
from harness.wire import Event

MUTEX_BYTES = 64  # more than a pthread_mutex_t has on any Linux


@dataclass(frozen=True, kw_only=True)
class Hang(PointFault):
    """The rank takes no further step and does not end: its peers wait for it.

    ``stopped`` is SIGSTOP: no thread of the process runs, and it answers no signal but SIGKILL and SIGCONT. ``loop`` is
    a loop in Python that never ends. ``lock`` waits in C for a lock that is never free, and keeps the interpreter's: no
    other Python thread of the process runs any more.

    Attributes:
        how: stopped (by SIGSTOP), loop (in Python) or lock (in C, with the interpreter locked).
    """

    level: ClassVar = "process"
    places: ClassVar = frozenset({"step", "phase", "failpoint", "collective"})
    certifies: ClassVar = "a rank that stands still is named, and its peers end in bounded time"
    does_not_certify: ClassVar = "that a launcher ends it soon: torchrun waits 30 s for one that is stopped"
    at_stake: ClassVar = ("EndsInTime", *RESUMED)

    drawn: ClassVar = {"how": ("loop", "lock")}  # torchrun waits 30 s for one that is stopped
    needs_peers: ClassVar = True

    kind: Literal["hang"] = "hang"
    how: Literal["stopped", "loop", "lock"] = "loop"

    @property
    def ends_rank(self) -> bool:
        return True  # it goes no further: someone else ends it

    def fire(self) -> None:
        if self.how == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
            while True:  # the harness continues it once it was told to end, to get its stacks
                signal.pause()
        elif self.how == "lock":
            _wait_in_c()
        else:
            _give_way()
            while True:
                pass

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        return work_after(self, after)


def _give_way() -> None:
    """The lowest priority: the loop has its processor for itself as long as nothing else wants it.

    Else the runs beside it pay for it, and its peers' deadlines come while they wait for a processor.
    """
    os.nice(19)
    with suppress(OSError):  # where sessions are scheduled as groups (CONFIG_SCHED_AUTOGROUP), it is the group's
        Path("/proc/self/autogroup").write_text("19")


def _wait_in_c() -> NoReturn:
    """Lock a mutex twice: unlike a sleep, the second call does not come back when a signal has been handled."""
    libc = ctypes.PyDLL(None)  # PyDLL: the interpreter stays locked during a call
    mutex = ctypes.create_string_buffer(MUTEX_BYTES)  # zeros: PTHREAD_MUTEX_INITIALIZER
    while True:
        libc.pthread_mutex_lock(mutex)
