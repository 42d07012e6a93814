"""Where a process stood, from the stacks that faulthandler wrote: the last dump in them counts.

Asked for on a deadline, or written when the launcher ended the process (see harness.rank.traces).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

from harness.history import SIGTERM_HEADER, History

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
class Dump:
    """The stacks of one moment, as a person wants to read them.

    Attributes:
        is_ended: they were written when the launcher ended the process; else on a deadline or a fatal signal.
        is_in_script: some thread of them ran the script; else none did yet, or any more.
        text: as faulthandler wrote them, without the frames that only led to the script.
    """

    is_ended: bool
    is_in_script: bool
    text: str


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


def dumps_of(text: str) -> list[Dump]:
    """The dumps of a process, from the stacks that it left; empty if there is nothing in them."""
    asked, header, ended = text.partition(SIGTERM_HEADER)
    found = [_dump(asked, is_ended=False)] if asked.strip() else []
    return [*found, *([_dump(ended, is_ended=True)] if header and ended.strip() else [])]


def _dump(text: str, *, is_ended: bool) -> Dump:
    threads: list[list[str]] = [[]]
    for line in text.strip().splitlines():
        if _THREAD.match(line):
            threads.append([])
        threads[-1].append(line)
    shown = [_without_what_led_to_it(lines) for lines in threads if lines]
    text = "\n".join(line for lines, _ in shown for line in lines)
    return Dump(is_ended=is_ended, is_in_script=any(is_in_script for _, is_in_script in shown), text=text)


def _without_what_led_to_it(lines: list[str]) -> tuple[list[str], bool]:
    """One thread's lines down to the script, or to what our own code did in its place; and whether it is the script."""
    file, runs_it = _RUNS_THE_SCRIPT
    ours = [n for n, line in enumerate(lines) if (found := _FRAME.match(line)) and found[1].endswith(file)]
    if not ours:
        return lines, False
    end = ours[0]
    is_in_script = lines[end].endswith(f" in {runs_it}")
    while is_in_script and end > 0 and "<frozen runpy>" in lines[end - 1]:
        end -= 1
    end += not is_in_script
    num_frames = sum(_FRAME.match(line) is not None for line in lines[end:])
    return [*lines[:end], *([f"  [{num_frames} frames that led to it]"] if num_frames else [])], is_in_script


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
