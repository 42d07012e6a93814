"""The threads of this process, those of libraries too."""

from __future__ import annotations

import os
from pathlib import Path

_PF_EXITING = 0x4  # include/linux/sched.h


def native_threads() -> list[str]:
    """Names of this process's threads beside the main one, sorted.

    A thread that was joined is listed by the kernel until it is gone for good: with this flag it runs no code any more.
    """
    main = str(os.getpid())
    names = []
    for task in Path("/proc/self/task").iterdir():
        try:
            name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue  # it ended while we looked
        flags = int(rest.split()[6])  # proc_pid_stat(5), field 9
        if task.name != main and not flags & _PF_EXITING:
            names.append(name)
    return sorted(names)
