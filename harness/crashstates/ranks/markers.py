"""What a traced process says of itself in the middle of its system calls: writes to /dev/null that only strace sees."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_PREFIX = "chaos-mark "


@dataclass(frozen=True)
class Marker:
    """``word`` is one of these:

    begin, ack      of a save; value: the step
    at              value: file:line
    lines           value: the lines that this thread was at since it last said so, and when (``lines_said``)
    threads         value: thread ids of Python's threads; each one that is started later says itself
    met             this thread has come back from where it waited for other ranks
    issued          this thread is about to hand a message for other ranks to threads of C++
    unseen          from now on it is not said any more when threads meet
    load, loaded    value: n
    """

    word: str
    value: str


class Speaker:
    """Says markers; in a process whose system calls are being recorded."""

    def __init__(self) -> None:
        self._fd = os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC)

    def say(self, word: str, value: object) -> None:
        os.write(self._fd, f"{_PREFIX}{word} {value}".encode())

    def say_lines(self, lines: Sequence[tuple[int, str]]) -> None:
        """One marker for many lines: microseconds since the epoch, and the line from then on."""
        numbers: dict[str, int] = {}
        coded = [(time_us, numbers.setdefault(line, len(numbers))) for time_us, line in lines]
        self.say("lines", json.dumps([list(numbers), coded]))


def lines_said(value: str) -> Iterator[tuple[float, str]]:
    """What ``say_lines`` was given: seconds since the epoch, as strace has them, and the line."""
    lines, coded = json.loads(value)
    for time_us, number in coded:
        yield time_us / 1e6, lines[number]


def parse(data: bytes) -> Marker | None:
    """The marker that was written to /dev/null as ``data``; None if it was something else."""
    text = data.decode(errors="replace")
    if not text.startswith(_PREFIX):
        return None
    word, _, value = text.removeprefix(_PREFIX).partition(" ")
    return Marker(word, value)
