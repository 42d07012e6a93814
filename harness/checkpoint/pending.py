"""A save that goes on in a thread of its own while training does, and what becomes of it when the process ends.

The thread is no daemon: the interpreter waits for it before it ends. A save that failed and whose result nobody asked
for is told then, and the process leaves with exit code 1: nobody should take the last checkpoint for saved.
"""

from __future__ import annotations

import atexit
import contextvars
import os
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.errors import SaveFailed


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A save that every rank knows to be done."""

    step: int
    path: Path
    manifest_sha256: str


class PendingSave:
    """A save of update ``step`` under way; made by ``CheckpointStore.async_save``.

    Args:
        work: does the save; runs in a thread, in the context of whoever made this.
    """

    def __init__(self, step: int, work: Callable[[], Saved]) -> None:
        self.step = step
        self._work = work
        self._saved: Saved | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(
            target=contextvars.copy_context().run, args=(self._run,), name="checkpoint-save", daemon=False
        )
        _unasked.add(self)
        self._thread.start()

    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return not self._thread.is_alive()

    def result(self, timeout_s: float | None = None) -> Saved:
        """Wait for the save to end, at most ``timeout_s``; returns once every rank knows that it is durable.

        Raises:
            SaveFailed: on all ranks; the checkpoints before it are untouched.
            RuntimeError: from the process group, if a rank is gone; what was being written stays unpublished.
            TimeoutError: it is still going on.
        """
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(f"the save of step {self.step} is still going on after {timeout_s} s; ask again")
        _unasked.discard(self)
        if self._error is not None:
            raise self._error
        if self._saved is None:
            raise SaveFailed(f"the save of step {self.step} goes on in the process that this one was forked from")
        return self._saved

    @property
    def is_asked_for(self) -> bool:
        """Whether somebody has seen how it ended."""
        return self not in _unasked

    def _run(self) -> None:
        try:
            self._saved = self._work()
        except BaseException as error:  # whatever it is, it waits for whoever asks
            self._error = error
        finally:
            del self._work  # and with it the copy of all that was to be saved


_unasked: set[PendingSave] = set()
os.register_at_fork(after_in_child=_unasked.clear)  # no thread of the parent's goes on in a child


# Registered as early as this module is imported, so that it comes after the handlers of whoever imported it.
@atexit.register
def _leave_loudly() -> None:
    failed = [pending for pending in _unasked if pending._error is not None]
    for pending in failed:
        print(f"the save of step {pending.step} failed, and nobody asked for its result:", file=sys.stderr)
        traceback.print_exception(pending._error)
    if failed:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(1)
