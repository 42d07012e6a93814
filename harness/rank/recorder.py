"""One JSON line an event, each written by one unbuffered ``write``: SIGKILL loses nothing that was recorded.

Recording never raises into training: when the disk is full, the first line that is lost is told on stderr once, and
the missing end of the record makes the verdicts ``unknown``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.wire import Kind, Phase

# One encoder for all lines: json.dumps would make one on each call. Short separators halve the time to write.
encode = json.JSONEncoder(separators=(",", ":"), check_circular=False, default=str).encode


class Recorder:
    """The record of this process, and where the training script is: ``step`` and ``phase`` (see harness.wire).

    Attributes:
        on_phase: called after each change of phase with (step, phase); the triggers listen here.
    """

    def __init__(self, path: Path) -> None:
        # O_APPEND: a line is whole or torn at its end, never overwritten.
        self._fd: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.step = 0
        self.phase: Phase = "init"
        self.on_phase: Callable[[int, Phase], None] | None = None
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        # A loader's worker process is not this rank: it must not write into its record.
        self._fd = None

    def emit(self, kind: Kind, **fields: Any) -> None:
        self.emit_encoded(kind, "," + encode(fields)[1:-1] if fields else "")

    def emit_encoded(self, kind: Kind, members: str) -> None:
        """Record an event whose fields were encoded before: JSON members, each with a comma before it."""
        if self._fd is not None:
            line = f'{{"t":{time.monotonic_ns()},"kind":"{kind}","step":{self.step},"phase":"{self.phase}"{members}}}\n'
            try:
                os.write(self._fd, line.encode())
            except OSError as error:
                self._lose(kind, error)

    def enter(self, phase: Phase, step: int) -> None:
        """The script is in ``phase`` of ``step`` from now on."""
        if phase == self.phase and step == self.step:
            return
        self.phase, self.step = phase, step
        if self._fd is not None:  # written here: amid training, one more Python function costs 4 us, with cold caches
            line = f'{{"t":{time.monotonic_ns()},"kind":"phase","step":{step},"phase":"{phase}"}}\n'
            try:
                os.write(self._fd, line.encode())
            except OSError as error:
                self._lose(Kind.PHASE, error)
        if self.on_phase is not None:
            self.on_phase(step, phase)

    def _lose(self, kind: Kind, error: OSError) -> None:
        self._fd = None
        print(f"chaos: the record ends here, {kind} could not be written: {error}", file=sys.stderr, flush=True)
