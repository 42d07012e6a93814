"""The TCP connections of this process, and the end of those that collectives go over."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

FDS = Path("/proc/self/fd")


def shut_down_all_but(store_port: int) -> int:
    """Shut down every TCP connection that does not begin or end at ``store_port``, for both sides; returns how many.

    The process keeps its descriptors: whoever owns them finds out when it reads or writes.
    """
    count = 0
    for connection in _connections():
        with closing(connection), suppress(OSError):  # not connected: it listens
            if store_port not in (connection.getsockname()[1], connection.getpeername()[1]):
                connection.shutdown(socket.SHUT_RDWR)
                count += 1
    return count


def _connections() -> Iterator[socket.socket]:
    for link in FDS.iterdir():
        with suppress(OSError):  # gone meanwhile
            if str(link.readlink()).startswith("socket:"):
                found = socket.socket(fileno=os.dup(int(link.name)))
                if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
                    yield found
                else:
                    found.close()
