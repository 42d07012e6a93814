"""Digests of the random generators in use: Python's, numpy's if it was imported, and torch's.

They are taken after every update and must cost little, but ``random.getstate()`` makes 625 integers, and numpy's
``get_state()`` fills an array one by one: 70 us together, and some 300 us amid training, when the caches are cold. So
their words are read where the generators keep them, if that place was proved to be the right one.
"""

from __future__ import annotations

import array
import ctypes
import functools
import random
import sys
from typing import Any

import torch
import xxhash

_HEADER_BYTES = object.__basicsize__  # of every object: reference count and type


def rng_digests() -> tuple[str, str | None, str]:
    """Of each of ``wire.GENERATORS`` a hex digest: equal if it draws alike from here on. None: it is not there."""
    words, generator = _python()
    normal = generator.gauss_next  # made with the last one, to be drawn next
    python = _digest(_read_python(generator) if words is None else words, *(() if normal is None else (_text(normal),)))
    state = torch.default_generator.get_state()
    cpu = _memory(state.data_ptr(), state.numel())
    if torch.cuda.is_initialized():
        on_gpu = torch.cuda.get_rng_state()
        by_torch = _digest(cpu, _memory(on_gpu.data_ptr(), on_gpu.numel()))
    else:
        by_torch = _digest(cpu)
    numpy = sys.modules.get("numpy")
    return python, None if numpy is None else _digest(*_numpy(numpy.random).parts()), by_torch


def _digest(first: Any, *others: Any) -> str:
    if not others:
        return xxhash.xxh3_64_hexdigest(first)
    hasher = xxhash.xxh3_64(first)
    for part in others:
        hasher.update(part)
    return hasher.hexdigest()


def _text(value: object) -> bytes:
    return repr(value).encode()


def _memory(address: int, size_bytes: int) -> Any:
    return (ctypes.c_char * size_bytes).from_address(address)


def _inside(thing: object) -> Any:
    """What an object holds in itself, but for its header."""
    return _memory(id(thing) + _HEADER_BYTES, type(thing).__basicsize__ - _HEADER_BYTES)


def _packed(*words: int) -> bytes:
    return array.array("I", words).tobytes()


@functools.cache
def _python() -> tuple[Any, Any]:
    """Where the generator behind the functions of ``random`` keeps its words (None: it is unknown), and itself."""
    generator: Any = random.getstate.__self__  # type: ignore[attr-defined]
    words, inside = _read_python(generator), _inside(generator)
    # CPython keeps the position, then the words; another interpreter need not.
    found = _memory(ctypes.addressof(inside), len(words)) if inside.raw.startswith(words) else None
    return found, generator


def _read_python(generator: Any) -> bytes:
    *words, position = generator.getstate()[1]
    return _packed(position, *words)


class _Numpy:
    """The generator behind the functions of ``numpy.random``.

    Args:
        module: ``numpy.random``.
    """

    def __init__(self, module: Any) -> None:
        self._stock = module.MT19937
        self._generator = module.get_state.__self__
        self._inside = _inside(self._generator)
        self._keeps_inside = _keeps_inside(module)
        self._bits: Any = None  # what gives it random bits; the script may put in another one
        self._words: Any = None
        self._looked = self._rest = b""

    def parts(self) -> tuple[Any, ...]:
        """What its state consists of, as bytes."""
        if self._generator._bit_generator is not self._bits:
            self._find()
        if self._words is None:
            return (repr(self._generator.get_state(legacy=False)).encode(),)
        if self._inside.raw != self._looked:  # the normal number made with the last one, to be drawn next
            self._looked, self._rest = self._inside.raw, repr(self._generator.get_state()[3:]).encode()
        return self._words, self._rest

    def _find(self) -> None:
        self._bits, self._words, self._looked = self._generator._bit_generator, None, b""
        if type(self._bits) is self._stock and self._keeps_inside:
            _, words, position, *_ = self._generator.get_state()
            expected = _packed(*words, position)
            found = _memory(self._bits.ctypes.state_address, len(expected))
            self._words = found if found.raw == expected else None


def _keeps_inside(module: Any) -> bool:
    """Whether what numpy's generator holds beside the bits lies in the object itself: its change is seen there."""
    trial = module.RandomState(module.MT19937(0))
    inside = _inside(trial)
    for _ in range(2):  # the first makes two normal numbers and keeps one, the second draws that
        before = inside.raw
        trial.randn()
        if inside.raw == before:
            return False
    return True


_numpy = functools.cache(_Numpy)
