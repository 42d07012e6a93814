"""A digest of the random generators in use: Python's, torch's, and numpy's if it was imported."""

from __future__ import annotations

import ctypes
import random
import sys
from typing import Any

import torch
import xxhash

_MT19937_BYTES = 625 * 4  # 624 words and the position among them


def rng_digest() -> str:
    """Hex digest of the generators' states: equal if they draw alike from here on."""
    hasher = xxhash.xxh3_128()
    _, words, normal = random.getstate()
    hasher.update(f"{hash(words)} {normal!r};".encode())  # to pack 625 integers would take longer than all the rest
    _update(hasher, torch.default_generator.get_state())
    if torch.cuda.is_initialized():
        _update(hasher, torch.cuda.get_rng_state())
    if (numpy := sys.modules.get("numpy")) is not None:
        hasher.update(_numpy.state(numpy.random))
    return hasher.hexdigest()


def _update(hasher: Any, state: torch.Tensor) -> None:
    hasher.update((ctypes.c_char * state.numel()).from_address(state.data_ptr()))


class _Numpy:
    """The state behind the functions of ``numpy.random``, which takes 70 us to get: asked for only if it has moved.

    Its words are looked at where numpy's ctypes interface says that they are. What that does not show is the second
    one of a pair of normal numbers being drawn and nothing else: the next number drawn shows it.
    """

    def __init__(self) -> None:
        self._bits: Any = None
        self._address = 0
        self._words = self._state = b""

    def state(self, module: Any) -> bytes:
        bits = module.mtrand._rand._bit_generator
        if bits is not self._bits:
            self._bits, self._words = bits, b""
            self._address = bits.ctypes.state_address if type(bits) is module.MT19937 else 0
        words = ctypes.string_at(self._address, _MT19937_BYTES) if self._address else b""
        if not words or words != self._words:
            self._words, state = words, module.get_state(legacy=False)
            self._state = repr({**state, "state": words or repr(state["state"])}).encode()
        return self._state


_numpy = _Numpy()
