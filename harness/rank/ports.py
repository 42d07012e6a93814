"""A port for the ranks' store that nobody takes between its choice and its use."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")  # ip(7): of ports that the kernel gives out by itself
_LOWEST = 15000
_TRIES = 32


def outside_the_range(otherwise: Callable[[], int]) -> int:
    """A free port below those that connections and listeners get that ask for none.

    torchrun asks for such a one, closes it, and has rank 0 listen on it a while later: with some runs at a time
    another process has got it by then, once in a few thousand launches.

    Args:
        otherwise: tells a port where there is none below them.
    """
    first = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 0
    for _ in range(_TRIES if first > _LOWEST else 0):
        port = random.SystemRandom().randrange(_LOWEST, first)  # the script's seeds are none of ours
        if _is_free(port):
            return port
    return otherwise()


def _is_free(port: int) -> bool:
    has_both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if has_both else socket.AF_INET
    try:
        with socket.create_server(("", port), family=family, dualstack_ipv6=has_both):
            return True
    except OSError:
        return False
