"""One import of torch for many processes that launch runs: each gets a warm parent of its own, forked from a nursery.

To import torch takes four seconds of a processor. Beyond that nothing is shared: a warm parent of a nursery serves one
process, is replaced when it misbehaves, and ends with who asked for it. See harness.rank.nursery for the protocol.
"""

from __future__ import annotations

import os
import select
import selectors
import signal
import socket
import subprocess
import weakref
from contextlib import suppress
from types import TracebackType
from typing import IO, Self

from harness.launch.base import child_environment, python_command

START_S = 120.0  # importing torch on a cold disk


class Nursery:
    """A process that has imported torch; a context manager that ends it, and all that came from it.

    Attributes:
        channel: where one asks for a warm parent; may be given to other processes, and asked by many at a time.
    """

    def __init__(self) -> None:
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                python_command("harness.rank.nursery", str(os.getpid()), str(theirs.fileno())),
                env=child_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # who gets no warm parent here starts one, which says what is wrong
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self.channel.close()


class Nursling:
    """A warm parent that a nursery forked, as far as ``subprocess.Popen`` is needed of it."""

    def __init__(self, line: socket.socket, pidfd: int) -> None:
        self.stdin: IO[bytes] = line.makefile("wb")
        self.stdout: IO[bytes] = line.makefile("rb")
        line.close()  # as soon as both files are
        self._pidfd = pidfd
        weakref.finalize(self, os.close, pidfd)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def wait(self) -> str:
        """Wait for its end; whose child it was hears of how it ended, nobody else can."""
        ends = select.poll()
        ends.register(self._pidfd, select.POLLIN)
        ends.poll()
        return "unknown"


def nursling(channel: socket.socket, log: IO[bytes]) -> Nursling | None:
    """A warm parent from the nursery at the other end of ``channel``; None if that has ended, or does not answer.

    Args:
        log: what is to become of what the warm parent and its supervisors write to stderr.
    """
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            socket.send_fds(channel, [b"."], [theirs.fileno(), log.fileno()])
        with selectors.DefaultSelector() as selector:
            selector.register(ours, selectors.EVENT_READ)
            fds = socket.recv_fds(ours, 1, 1)[1] if selector.select(START_S) else []
    except OSError:
        fds = []
    if not fds:
        ours.close()
        return None
    return Nursling(ours, fds[0])
