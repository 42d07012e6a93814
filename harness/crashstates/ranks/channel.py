"""Messages between the controller and the processes that it started: JSON, one a packet, channels beside it."""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

MAX_BYTES = 100_000  # of a message; under the kernel's default socket buffer
_MAX_FDS = 4


class HasFd(Protocol):
    """A channel or a socket."""

    def fileno(self) -> int: ...


class Channel:
    """One end of a socket pair; when the other is closed, or its process has ended, messages come to their end."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(ours), cls(theirs)

    @classmethod
    def of_fd(cls, fd: int) -> Channel:
        os.set_inheritable(fd, False)
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, message: dict[str, Any], channels: Sequence[HasFd] = ()) -> None:
        """Send a message, and ends of other channels, or other sockets, with it.

        Raises:
            OSError: the other end is gone, or the message is longer than MAX_BYTES.
        """
        data = json.dumps(message).encode()
        if len(data) > MAX_BYTES:
            raise OSError(f"a message of {len(data)} bytes is longer than {MAX_BYTES}: {data[:80]!r}")
        socket.send_fds(self._sock, [data], [channel.fileno() for channel in channels])

    def receive(self) -> tuple[dict[str, Any], list[Channel]] | None:
        """Wait for the next message and the channels that came with it; None: the other end is gone."""
        try:
            data, fds, _, _ = socket.recv_fds(self._sock, MAX_BYTES + 1, _MAX_FDS)
        except ConnectionResetError:
            return None
        if not data:
            return None
        return json.loads(data), [Channel.of_fd(fd) for fd in fds]

    def detach(self) -> int:
        """The descriptor, from now on the caller's."""
        return self._sock.detach()

    def has_message(self) -> bool:
        """Whether ``receive`` would return at once."""
        return bool(wait_readable([self], time.monotonic()))

    def close(self) -> None:
        with suppress(OSError):
            self._sock.close()


def wait_readable(channels: Iterable[Channel], until_s: float) -> list[Channel]:
    """Those with a message or at their end, once there is one; none if ``time.monotonic()`` passes ``until_s``."""
    poll = select.poll()
    by_fd = {channel.fileno(): channel for channel in channels}
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    return [by_fd[fd] for fd, _ in poll.poll(max(0.0, until_s - time.monotonic()) * 1000)]
