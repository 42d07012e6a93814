"""Imports torch once, then forks a warm parent for each process that asks: one import serves all workers of a night.

    python -m harness.rank.nursery PARENT_PID CHANNEL_FD

Who wants a warm parent sends a packet on the channel with two descriptors: what the warm parent is to talk through, and
what it is to write its complaints to. On the first the warm parent sends a descriptor of itself (a pidfd: whoever has
it ends this process and no other), and from then on it is a warm parent like any: see ``harness.rank.warm``.

It lives until whoever asked closes the line, kills it, or the nursery ends; a run of its ends with it.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import traceback
from contextlib import suppress
from typing import NoReturn

from harness.rank import lifeline, warm


def main(parent_pid: int, channel_fd: int) -> None:
    lifeline.die_with_parent(parent_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warm.prepare(())
    nursery_pid = os.getpid()
    with socket.socket(fileno=channel_fd) as channel:
        while True:
            packet, fds, _, _ = socket.recv_fds(channel, 1, 2)
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if not packet:
                return  # nobody is left who could ask
            with suppress(OSError, ValueError):  # no room for one more, or its descriptors: the others are to go on
                line, log = fds
                if os.fork() == 0:
                    _be_warm_parent(nursery_pid, channel_fd, line, log)
            for fd in fds:
                os.close(fd)


def _be_warm_parent(nursery_pid: int, channel_fd: int, line: int, log: int) -> NoReturn:
    code = 1
    try:
        os.setsid()
        for source, fd in ((line, 0), (line, 1), (log, 2)):  # those that a warm parent's runs take no part in
            os.dup2(source, fd)
        for fd in (channel_fd, line, log):
            os.close(fd)
        lifeline.die_with_parent(nursery_pid)
        with socket.socket(fileno=os.dup(0)) as asked_by:
            itself = os.pidfd_open(os.getpid())
            socket.send_fds(asked_by, [b"."], [itself])
            os.close(itself)
        warm.serve(_wait)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _wait(pid: int) -> int:
    """Wait for the child; returns its exit code. Ends this process, and so the child, when nobody listens any more."""
    pidfd = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(0, 0)  # POLLHUP comes without being asked for
    hung_up = any(fd == 0 for fd, _ in poll.poll())
    os.close(pidfd)
    if hung_up:
        os._exit(1)
    return warm.wait(pid)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
