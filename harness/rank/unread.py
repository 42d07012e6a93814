"""What cannot be read is no reason to end a training: it is said on stderr, once, and is in no record."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_said: set[str] = set()


def read(what: str, call: Callable[[], T], otherwise: T) -> T:
    """What ``call`` returns; ``otherwise`` if it raises, after a word on ``what`` cannot be read and why."""
    try:
        return call()
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "")
        said = f"chaos: {what} cannot be read and is compared with nothing: {type(error).__name__}: {reason}"
        if said not in _said:
            _said.add(said)
            print(said, file=sys.stderr, flush=True)
        return otherwise
