"""One JSON line an event, written where SIGKILL loses nothing of it: into pages of the file, mapped a window at a time.

A system call for each line would cost as much as all the rest of recording it, for amid training it meets cold caches.
The file ends with zeros, room for the next lines, until the process ends by itself.

Recording never raises into training: when the disk is full, the first line that is lost is told on stderr once, and
the missing end of the record makes the verdicts ``unknown``. Room on the disk is taken before it is written to.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.rank.unread import read
from harness.wire import Kind, Phase

WINDOW_BYTES = 1 << 16

# One encoder for all lines: json.dumps would make one on each call. Short separators halve the time to write.
encode = json.JSONEncoder(separators=(",", ":"), check_circular=False, default=str).encode
_now_ns = time.monotonic_ns


class Recorder:
    """The record of this process, and where the training script is: ``step`` and ``phase`` (see harness.wire).

    Attributes:
        left_out: how many updates gradient scalers have left out so far; the step does not count such attempts.
        on_phase: called after each change of phase with (step, phase); the triggers listen here.
    """

    def __init__(self, path: Path) -> None:
        self._fd: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._window: Any = b""
        self._window_bytes = self._used_bytes = 0
        self._offset = os.fstat(self._fd).st_size  # of the window in the file
        self._moving = threading.RLock()  # reentrant: a signal handler may record as well
        self.step = 0
        self.phase: Phase = "init"
        self.left_out = 0
        self.on_phase: Callable[[int, Phase], None] | None = None
        os.register_at_fork(after_in_child=self._forget)

    def emit(self, kind: Kind, **fields: Any) -> None:
        try:
            members = encode(fields)[1:-1]
        except Exception:  # an integer of more digits than Python writes, say: the others are told all the same
            members = encode({name: value for name, value in fields.items() if _can_be_told(name, value)})[1:-1]
        self.emit_encoded(kind, f",{members}" if members else "")

    def emit_encoded(self, kind: Kind, members: str) -> None:
        """Record an event whose fields were encoded before: JSON members, each with a comma before it."""
        line = f'{{"t":{_now_ns()},"kind":"{kind}","step":{self.step},"phase":"{self.phase}"{members}}}\n'.encode()
        size_bytes = len(line)
        start = self._used_bytes  # from here to the end as in _write, for amid training each call of it takes 2 us
        end = start + size_bytes
        if end <= self._window_bytes:
            self._used_bytes = end
            self._window[start:end] = line
        else:
            self._write(kind, line)

    def enter(self, phase: Phase, step: int) -> None:
        """The script is in ``phase`` of ``step`` from now on."""
        if phase == self.phase and step == self.step:
            return
        self.phase, self.step = phase, step
        line = f'{{"t":{_now_ns()},"kind":"phase","step":{step},"phase":"{phase}"}}\n'.encode()
        size_bytes = len(line)
        start = self._used_bytes  # as in emit_encoded
        end = start + size_bytes
        if end <= self._window_bytes:
            self._used_bytes = end
            self._window[start:end] = line
        else:
            self._write(Kind.PHASE, line)
        if self.on_phase is not None:
            self.on_phase(step, phase)

    def trim(self) -> None:
        """Leave out the zeros at the end, until the next event."""
        if self._fd is not None:
            self._offset, self._used_bytes, self._window_bytes = self._offset + self._used_bytes, 0, 0
            os.ftruncate(self._fd, self._offset)

    def _write(self, kind: Kind, line: bytes) -> None:
        size_bytes = len(line)
        # From here on nothing is called before the line has its place: no thread and no signal handler comes between.
        start = self._used_bytes
        end = start + size_bytes
        if end <= self._window_bytes:
            self._used_bytes = end
            self._window[start:end] = line
        elif self._fd is not None and self._has_moved(kind, size_bytes):
            self._write(kind, line)

    def _has_moved(self, kind: Kind, size_bytes: int) -> bool:
        """Whether the window has room for so many bytes now."""
        with self._moving:
            try:
                if self._used_bytes + size_bytes > self._window_bytes and self._fd is not None:
                    self._move_window(self._fd, size_bytes)
            except OSError as error:
                self._forget()
                print(f"chaos: the record ends here, {kind} could not be written: {error}", file=sys.stderr, flush=True)
        return self._fd is not None

    def _move_window(self, fd: int, size_bytes: int) -> None:
        """Map the part of the file that comes next."""
        offset = (self._offset + self._used_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
        window_bytes = max(WINDOW_BYTES, (size_bytes // mmap.PAGESIZE + 2) * mmap.PAGESIZE)
        os.posix_fallocate(fd, offset, window_bytes)  # to write to a page that the disk has no room for is SIGBUS
        window = mmap.mmap(fd, window_bytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE, offset=offset)
        # From here on no thread and no signal handler comes between; to free a window lets them, so it is held so long.
        _old, used_bytes = self._window, self._offset + self._used_bytes - offset
        self._window, self._window_bytes, self._used_bytes, self._offset = window, window_bytes, used_bytes, offset

    def _forget(self) -> None:
        # A loader's worker process is not this rank: it must not write into its record.
        self._fd, self._window_bytes = None, 0


def _can_be_told(name: str, value: Any) -> bool:
    return bool(read(f"the field {name} of an event", lambda: encode(value), ""))
