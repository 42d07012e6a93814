"""Memory in huge pages: its content stays, and a kernel that knows how has put it there."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

HUGE_KB = 2048

PROGRAM = """
import os, re
from pathlib import Path
from harness.rank import huge_pages

def huge_kb():
    return int(re.search(r"AnonHugePages: +([0-9]+)", Path("/proc/self/smaps_rollup").read_text())[1])

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
    if int(out) <= 0:
        pytest.skip(f"the kernel ({platform.release()}) gave no huge page: MADV_COLLAPSE is of Linux 6.1")
    assert int(out) % HUGE_KB == 0
