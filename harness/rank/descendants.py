"""The processes below this one: what adopts orphans (``lifeline.adopt_orphans``) finds and ends them all here.

SIGCHLD may be blocked, as in the supervisor, which is then woken by it; else the waits look again every 10 ms.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import psutil

END_S = 10.0  # how long killed processes may take to be gone


def running() -> list[psutil.Process]:
    if not _has_children():
        return []  # nothing below: spares a look at every process of the machine
    return [p for p in psutil.Process().children(recursive=True) if _is_running(p)]


def _has_children() -> bool:
    """Whether there is a child, running or ended and not reaped; every descendant is below one."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _is_running(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def reap() -> Iterator[tuple[int, int]]:
    """Every child that has ended: its pid and exit code (negative: by that signal)."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, os.waitstatus_to_exitcode(status)


def settle(is_done: Callable[[], bool], within_s: float) -> bool:
    """Wait until ``is_done``, woken by every child that ends; returns what it was at the end."""
    ends = time.monotonic() + within_s
    while not is_done():
        if time.monotonic() >= ends:
            return False
        signal.sigtimedwait({signal.SIGCHLD}, 0.01)
    return True


def none_left() -> bool:
    for _ in reap():
        pass
    return not _has_children()  # one that has ended since is reaped when this is asked again


def end_all() -> bool:
    """Kill them, and what they start meanwhile; returns whether none is left."""

    def kill_and_look() -> bool:
        for process in running():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return none_left()

    return settle(kill_and_look, END_S)
