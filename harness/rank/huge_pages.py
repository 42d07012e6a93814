"""Memory in huge pages, so that a fork copies a hundred entries of a page table and not fifty thousand."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

# include/uapi/linux/mman.h; madvise(2). A kernel before 6.1 does not know it: its forks are slower, no more.
_MADV_COLLAPSE = 25
_HUGE_BYTES = 2 << 20
_PRIVATE_MEMORY = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p 00000000 00:00 0 *(?:\[heap\])?$", re.MULTILINE)


def collapse() -> None:
    """Ask the kernel for huge pages wherever this process has memory of its own; what it refuses stays as it is.

    For a process with torch loaded a fork takes 0.7 ms then, not 3, and the end of the child as much less.
    """
    libc = ctypes.CDLL(None)
    for start, end in _PRIVATE_MEMORY.findall(Path("/proc/self/maps").read_text()):
        first = -(-int(start, 16) // _HUGE_BYTES) * _HUGE_BYTES
        size_bytes = int(end, 16) // _HUGE_BYTES * _HUGE_BYTES - first
        if size_bytes > 0:
            libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(size_bytes), _MADV_COLLAPSE)
