"""How far it is, on a terminal: thousands of states, or hundreds of tries, may take a while."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

EVERY_S = 0.5


class Progress:
    """Counts; says so on stderr if a person may read it there.

    Args:
        what: is counted.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._count = 0
        self._told_s = time.monotonic()
        self._is_shown = sys.stderr.isatty()

    def count(self, *_: object) -> None:
        """One more."""
        self._count += 1
        if self._is_shown and (now_s := time.monotonic()) - self._told_s >= EVERY_S:
            self._told_s = now_s
            print(f"\r{self._count:,} {self._what} ", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Leave nothing of it on the line."""
        if self._is_shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


@contextmanager
def progress(what: str) -> Iterator[Progress]:
    shown = Progress(what)
    try:
        yield shown
    finally:
        shown.clear()
