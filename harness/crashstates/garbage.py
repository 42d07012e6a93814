"""Less looking for garbage where much is made and little of it is any."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def rarely_collected(num_objects: int) -> Iterator[None]:
    """Meanwhile Python looks for garbage only after so many new objects, and then among these alone.

    Imports make much and leave little: looking takes an eighth of the time that torch's takes. So do the states of a
    save, where it takes a tenth.
    """
    usual, rare = gc.get_threshold(), (num_objects, 1000, 1000)
    gc.set_threshold(*rare)
    try:
        yield
    finally:
        if gc.get_threshold() == rare:  # else what ran has its own idea
            gc.set_threshold(*usual)
