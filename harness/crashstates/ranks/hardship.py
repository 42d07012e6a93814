"""What makes a rank's life hard from within, before it saves; the rest comes from without, by strace."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

_VERSION = 0x20080522  # linux/capability.h: 64 capabilities, in two words
_OVERRIDES = (1 << 1) | (1 << 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Word(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def obey_modes() -> None:
    """Give up root's power over file modes, in this thread and those that it starts.

    Raises:
        OSError: the kernel does not let it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    header, words = _Header(_VERSION, 0), (_Word * 2)()
    if libc.capget(ctypes.byref(header), words):
        raise OSError(ctypes.get_errno(), "capget")
    words[0].effective &= ~_OVERRIDES
    if libc.capset(ctypes.byref(header), words):
        raise OSError(ctypes.get_errno(), "capset")


def spend(counts: Mapping[str, int]) -> None:
    """Make so many vain calls, so that a count of them (strace's ``when=``) is past its aim in this thread.

    Args:
        counts: ``fsync`` or ``fdatasync`` -> how many.
    """
    libc = ctypes.CDLL(None)
    for name, count in counts.items():
        for _ in range(count):
            getattr(libc, name)(-1)
