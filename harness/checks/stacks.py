"""Where a process stood, from the stacks that faulthandler wrote: the last dump in them counts.

Asked for on a deadline, or written when the launcher ended the process (see harness.rank.traces).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

from harness.history import History

# The words of CPython's faulthandler (Python/traceback.c); of each thread the innermost frame comes first.
_THREAD = re.compile(r"^(?:Current thread|Thread) .*\(most recent call first\):$")
_FRAME = re.compile(r'^  File "(.*)", line (\d+|\?\?\?) in (.*)$')
_COMMUNICATION = ("/torch/distributed/", "/torch/nn/parallel/distributed.py", "/harness/rank/collectives.py")
_HARNESS = "/harness/rank/"
_RUNS_THE_SCRIPT = ("/harness/rank/main.py", "_run_script")  # a frame of the main thread alone
_INSTALLED = "/site-packages/"


@dataclass(frozen=True, kw_only=True)
class Frame:
    file: str
    line: str
    function: str

    def __str__(self) -> str:
        """``train.py:61 in step``; of an installed file the path within its installation."""
        name = self.file.rpartition(_INSTALLED)[2] if _INSTALLED in self.file else PurePath(self.file).name
        return f"{name}:{self.line} in {self.function}"


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where the main thread of one process was.

    Attributes:
        own: the innermost frame of the user's own script and of what lies beside it; None if there is none.
        innermost: the innermost frame of all: what it had called.
    """

    own: Frame | None
    innermost: Frame

    @property
    def is_communicating(self) -> bool:
        """Whether it was in torch's Python code for communication. Waiting in C++ alone leaves no frame."""
        return any(part in self.innermost.file for part in _COMMUNICATION)

    def __str__(self) -> str:
        if self.own is None or self.own == self.innermost:
            return str(self.innermost)
        return f"{self.own}, which called {self.innermost}"


def standing(history: History, rank: int, restart: int) -> Standing | None:
    """Where this process was when it was asked, or ended; None if it left no stacks."""
    threads = _threads(history.stacks.get((rank, restart), ""))
    of_script = [frames for frames in threads if any(_is_main(frame) for frame in frames)]
    frames = (of_script or threads or [[]])[-1]
    if not frames:
        return None
    folder = f"{PurePath(history.plan.script).parent}/"
    own = [
        f for f in frames if f.file.startswith(folder) and not any(part in f.file for part in (_INSTALLED, _HARNESS))
    ]
    return Standing(own=own[0] if own else None, innermost=frames[0])


def _is_main(frame: Frame) -> bool:
    file, function = _RUNS_THE_SCRIPT
    return frame.file.endswith(file) and frame.function == function


def _threads(text: str) -> list[list[Frame]]:
    """Of each thread its frames, in the order in which they were written; the main thread is the last of a dump."""
    threads: list[list[Frame]] = []
    for line in text.splitlines():
        if _THREAD.match(line):
            threads.append([])
        elif threads and (found := _FRAME.match(line)):
            threads[-1].append(Frame(file=found[1], line=found[2], function=found[3]))
    return [frames for frames in threads if frames]
