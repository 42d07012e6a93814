"""A process gets no more memory."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from harness.faults.base import PointFault, not_surfaced
from harness.wire import Event

CHUNK_BYTES = 1 << 20
MIN_HEADROOM_BYTES = 32 << 20  # what unwinding and the last words need


@dataclass(frozen=True, kw_only=True)
class OutOfMemory(PointFault):
    """The rank's address space is limited to what it has and ``headroom_bytes`` more (RLIMIT_AS), and it allocates
    until the kernel refuses: the MemoryError is the script's to deal with. What was allocated is free again by then;
    the limit stays, and the processes that the rank starts later inherit it.

    Attributes:
        headroom_bytes: how much more the rank may have, in bytes; at least 33554432 (32 MiB).
    """

    level: ClassVar = "process"
    is_told_by_peers: ClassVar = True
    places: ClassVar = frozenset({"step", "phase", "failpoint", "collective"})
    certifies: ClassVar = "the job survives a rank that gets no more memory, and its MemoryError is named"
    does_not_certify: ClassVar = (
        "the kernel's choice of whom to kill: a control group's limit ends a process by SIGKILL"
    )

    kind: Literal["out_of_memory"] = "out_of_memory"
    headroom_bytes: int = 128 << 20

    def problems(self) -> list[tuple[str, str]]:
        if self.headroom_bytes < MIN_HEADROOM_BYTES:
            return [("headroom_bytes", f"must be at least {MIN_HEADROOM_BYTES}: the rank's last words need some")]
        return []

    @property
    def ends_rank(self) -> bool:
        return self.at.failpoint is None  # a save's error may be handled by the store

    def fire(self) -> None:
        used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (used_bytes + self.headroom_bytes, hard))
        taken: list[bytearray] = []
        try:
            while True:
                taken.append(bytearray(CHUNK_BYTES))
        except MemoryError:
            got_bytes = len(taken) * CHUNK_BYTES
            taken.clear()
        raise MemoryError(self._message(got_bytes))

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        return not_surfaced(MemoryError.__name__, self._message(None), fired, after)

    def _message(self, got_bytes: int | None) -> str:
        limit = f"RLIMIT_AS leaves {self.headroom_bytes} bytes to this rank"
        return limit if got_bytes is None else f"{limit}; {got_bytes} were got"
