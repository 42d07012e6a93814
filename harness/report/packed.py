"""The marks of a timeline as a short string, small enough for a page to hold those of many ranks.

A mark is one letter and the time since the mark before, in units of a quantum, as a number of base 32:

    A-I   a phase is entered, in the order of ``harness.wire.PHASES``
    c     a collective is sent
    u     an update is done, of the step after the last one
    U     an update is done; a second number is its step

A number's digits are characters of ``DIGITS``, least significant first; all but its last digit come from the second
half of them. All characters stand for themselves in JSON and in HTML. What is nearer together than the quantum is
merged: it would be under a pixel on any screen.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.report.timeline import Mark, Process
from harness.wire import PHASES

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"
FIRST_QUANTUM_S = 1e-5
MAX_CHARS = 3_000_000
_LETTERS: dict[str, str] = {phase: chr(ord("A") + index) for index, phase in enumerate(PHASES)}


def pack(processes: Sequence[Process], max_chars: int = MAX_CHARS) -> tuple[float, list[str]]:
    """The quantum in seconds, and one string per process; the quantum is as fine as ``max_chars`` allows."""
    quantum_s = FIRST_QUANTUM_S
    while True:
        packed = [pack_marks(process.marks, process.begin_s, quantum_s) for process in processes]
        if sum(map(len, packed)) <= max_chars or quantum_s > 1e3:
            return quantum_s, packed
        quantum_s *= 4


def pack_marks(marks: Sequence[Mark], begin_s: float, quantum_s: float) -> str:
    """One process's marks; times count from ``begin_s``."""
    parts: list[str] = []
    now = step = 0
    for name, at, done in _merged(marks, begin_s, quantum_s):
        letter = _LETTERS.get(name) or ("c" if name == "collective" else "u" if done == step + 1 else "U")
        parts.append(letter + _number(at - now) + (_number(done) if letter == "U" else ""))
        now = at
        if name == "update":
            step = done
    return "".join(parts)


def _merged(marks: Sequence[Mark], begin_s: float, quantum_s: float) -> list[tuple[str, int, int]]:
    """Of marks within one quantum the last phase, one collective and the last update stay, in that order of rank."""
    kept: list[tuple[str, int, int]] = []
    within: dict[str, tuple[str, int, int]] = {}
    now = -1
    for at_s, name, step in marks:
        at = max(0, int((at_s - begin_s) / quantum_s))
        if at != now:
            kept += within.values()
            within, now = {}, at
        sort = name if name in ("collective", "update") else "phase"
        within.pop(sort, None)
        within[sort] = (name, at, step)
    return kept + list(within.values())


def _number(value: int) -> str:
    digits = ""
    while value >= 32:
        digits += DIGITS[32 + value % 32]
        value //= 32
    return digits + DIGITS[value]
