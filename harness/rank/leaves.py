"""What stands in nested containers: the tensors, and beside them numbers and words, each under its path.

So optimizers keep what the next update needs: a history of gradients in a list, say, or statistics by dimension.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from numbers import Number
from operator import itemgetter
from typing import Any, NamedTuple

import torch

PLAIN = (int, float, str, bytes, type(None), Number)  # numpy's scalars are numbers, too
CONTAINERS = (Mapping, list, tuple, deque)
MAX_DEPTH = 32  # no optimizer nests deeper; a list that is linked in Python would be read until the stack is full

Path = tuple[object, ...]


class Leaf(NamedTuple):
    """A tensor or one of ``PLAIN``: where it stands, and in what."""

    path: Path
    holder: Any
    key: Any

    @property
    def value(self) -> Any:
        return self.holder[self.key]

    @property
    def name(self) -> str:
        """What a person would write: ``exp_avg``, ``history[2]``, ``blocks['row'][0]``; the parameter is left out."""
        is_beside = isinstance(self.path[0], str)  # not of a parameter, which has a number
        kept, *inner = self.path if is_beside else self.path[1:] or self.path
        return str(kept).strip("'") + "".join(f"[{part}]" for part in inner)


def leaves(holder: Any, key: Any, path: Path, around: tuple[int, ...] = ()) -> Iterator[Leaf]:
    """The leaves of ``holder[key]``; in which order entries were added to a dict does not matter.

    Objects of other kinds are not read, and a list is not told from a tuple.

    Args:
        path: of what it is to begin with.
        around: identities of the containers that hold it: those in a circle are not read again, and at most
            ``MAX_DEPTH`` of them.
    """
    value = holder[key]
    if isinstance(value, (torch.Tensor, *PLAIN)):
        yield Leaf(path, holder, key)
    elif isinstance(value, CONTAINERS) and id(value) not in around and len(around) < MAX_DEPTH:
        for name, inner in _names(value):
            yield from leaves(value, inner, (*path, name), (*around, id(value)))


def _names(container: Any) -> Iterable[tuple[object, Any]]:
    """What each key of it is called in a path."""
    if not isinstance(container, Mapping):
        return enumerate(range(len(container)))
    names = (repr(key) if _is_told(key) else f"{type(key).__name__} {i}" for i, key in enumerate(container))
    return sorted(zip(names, container, strict=True), key=itemgetter(0))


def _is_told(key: Any) -> bool:
    """Whether its text is the same in every process: an object's may hold its address."""
    if isinstance(key, tuple):  # row and column of a block, say
        return all(map(_is_told, key))
    return isinstance(key, (*PLAIN, torch.device, torch.dtype))
