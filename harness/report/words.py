"""Small phrases of reports."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from typing import Any

MAX_LINE_CHARS = 300


def ranges(ranks: Iterable[int]) -> str:
    """Ranks as words, in short: ``rank 1``, ``ranks 0-2, 5``."""
    numbers = sorted(set(ranks))
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [str(run[0]) if len(run) == 1 else f"{run[0]}{', ' if len(run) == 2 else '-'}{run[-1]}" for run in runs]
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(parts)}"


def one_line(text: Any) -> str:
    """The first line of it, cut off where it is long."""
    line = next(iter(str(text).splitlines()), "")
    return line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]}..."


def signal_name(code: int) -> str:
    """The name of the signal that a negative exit code stands for: -9 is ``SIGKILL``."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def duration(seconds: float | None) -> str:
    """``12.3 ms``, ``4.56 s``, ``3 min 20 s``, ``2 h 05 min``; a dash for None."""
    if seconds is None:
        return "-"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 99.95:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
