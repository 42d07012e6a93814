"""No process of a run outlives the run: each ties its life to its parent's, and holds the run's lock while it lives.

The kernel ends a process when its parent dies (``PR_SET_PDEATHSIG``), if the process asked for it. A fork does not
inherit the wish, so every process asks for itself, and then checks that its parent is still there. The lock
(``alive`` in the run directory) is a shared flock on one open file that forks inherit: it is free exactly when none
of them is left, however they ended.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
from pathlib import Path

from harness.wire import ALIVE

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent_pid: int, by: signal.Signals = signal.SIGKILL) -> None:
    """Get the signal ``by`` as soon as the parent has ended; at once if it has already.

    Args:
        parent_pid: the parent as it was known before the fork or exec.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, by, 0, 0, 0)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), by)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, whatever session it moved to."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def hold_alive(run_dir: Path) -> int:
    """Hold the run's lock until this process and all that inherit the descriptor have ended.

    Returns:
        The descriptor; the caller keeps it open.
    """
    fd = os.open(run_dir / ALIVE, os.O_RDWR | os.O_CREAT, 0o600)
    os.set_inheritable(fd, True)
    fcntl.flock(fd, fcntl.LOCK_SH)
    return fd
