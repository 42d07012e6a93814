"""No store of the ranks' waits for a name server.

torch asks for the name of every address that a store connects or is connected to, only to quote it in messages. Of an
address like ``::ffff:127.0.0.1`` no /etc/hosts knows the name, so that a name server is asked; when its answer is lost,
the C library asks again after 5 s, and meanwhile the ranks' own timeouts have passed: seen as runs that could not
connect to their store, all of one machine at once. After one failure torch asks no more (pytorch#159596), so that it is
given one at once, without a word on the network. Names are asked for as ever by anybody else.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache

_TIMEOUT = timedelta(seconds=5)


class _Resolver(ctypes.Structure):
    """The first fields of a thread's resolver state, ``struct __res_state`` in glibc's resolv.h."""

    _fields_ = (
        ("retrans", ctypes.c_int),
        ("retry", ctypes.c_int),
        ("options", ctypes.c_ulong),
        ("nscount", ctypes.c_int),  # how many name servers there are to ask
    )


@cache  # a forked process remembers it, and so does its torch
def quote_addresses() -> None:
    """Have torch quote addresses instead of names, in this process and in those that it forks."""
    from torch._C._distributed_c10d import TCPStore

    with _no_name_server(), suppress(RuntimeError):  # where no store can be made, the ranks will say so
        TCPStore("127.0.0.1", 0, is_master=True, timeout=_TIMEOUT, wait_for_workers=False)


@contextmanager
def _no_name_server() -> Iterator[None]:
    """This thread, and no other, finds none to ask; without glibc nothing is changed."""
    libc = ctypes.CDLL(None)
    resolver = _Resolver()
    with suppress(AttributeError):
        libc.__res_init()
        state = libc.__res_state
        state.restype = ctypes.POINTER(_Resolver)
        resolver = state().contents
    num_servers, resolver.nscount = resolver.nscount, 0
    try:
        yield
    finally:
        resolver.nscount = num_servers
