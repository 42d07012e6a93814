"""Memory in huge pages: its content stays, and a kernel that gives some has put it there."""

from __future__ import annotations

import subprocess
import sys

import pytest

WANTED_KB = 30_000  # of 50 MB; less where memory is too scattered to give any

PROGRAM = """
import ctypes, mmap, os, re
from pathlib import Path
from harness.rank import huge_pages

def huge_kb():
    return int(re.search(r"AnonHugePages: +([0-9]+)", Path("/proc/self/smaps_rollup").read_text())[1])

MADV_COLLAPSE = 25
with mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as asked:  # the kernel, with none of ours
    for place in range(0, len(asked), mmap.PAGESIZE):
        asked[place] = 1
    start = -(-ctypes.addressof(ctypes.c_char.from_buffer(asked)) // (2 << 20)) * (2 << 20)
    ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(60 << 20), MADV_COLLAPSE)
    print(huge_kb())

kept = [bytes([number % 251]) * 1000 for number in range(50_000)]
before_kb = huge_kb()
huge_pages.collapse()
print(huge_kb() - before_kb)
pid = os.fork()
if not pid:
    kept[7] = b"mine"
    os._exit(kept != [b"mine" if number == 7 else bytes([number % 251]) * 1000 for number in range(50_000)])
assert os.waitpid(pid, 0)[1] == 0
assert kept == [bytes([number % 251]) * 1000 for number in range(50_000)]
"""


def test_memory_is_in_huge_pages_and_the_same_here_and_in_a_fork() -> None:
    out = subprocess.run([sys.executable, "-c", PROGRAM], check=True, stdout=subprocess.PIPE, text=True).stdout
    given_kb, found_kb = map(int, out.split())
    if given_kb < WANTED_KB:
        pytest.skip(f"of 60 MB the kernel itself gave {given_kb} KB in huge pages: before Linux 6.1 it gives none")
    assert found_kb >= WANTED_KB
