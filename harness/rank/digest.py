"""Digests of tensors: equal bytes give equal digests, on every rank and in every run.

xxh3 with 128 bits: it reads as fast as memory delivers, and nobody here tries to forge a collision (manifests, which
outlive a run, use sha256).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any

import torch
import xxhash

from harness.rank.layout import Layout
from harness.rank.unread import read

LARGE_BYTES = 1 << 20


Named = tuple[Sequence[object], Sequence[torch.Tensor]]  # names, and the tensors that have them


class Digests:
    """The digests of some lists of tensors, which are taken again and again.

    Mostly they are the same ones in the same places, and to prepare to read a small one takes longer than to read it.
    """

    def __init__(self) -> None:
        self._tensors: list[torch.Tensor] = []  # of all lists
        self._layout: Layout | None = None  # of these when they were prepared
        self._read: list[tuple[bytes, list[Any], bool]] = []  # of each list: header, memories, whether all are small

    def of(self, lists: Sequence[Named]) -> list[str]:
        """Of each list the hex digest (32 digits) over names, dtypes, shapes and bytes, in the order given."""
        self._tensors = [*chain.from_iterable(tensors for _, tensors in lists)]
        try:
            plain = [*map(_plain, self._tensors)]  # held until they are read, for they may be passing copies
        except Exception:  # of a kind of tensor that nobody here knows
            plain = [*map(_readable, self._tensors)]
        self._read, of_one_list = [], iter(plain)
        for names, tensors in lists:
            here = [next(of_one_list) for _ in tensors]
            kinds = [(tuple(t.shape), str(tensor.dtype)) for t, tensor in zip(here, tensors, strict=True)]
            header = repr([names, kinds]).encode()
            memories = [*map(_memory, here)]
            self._read.append((header, memories, all(len(memory) < LARGE_BYTES for memory in memories)))
        self._layout = None
        with suppress(ValueError, RuntimeError, TypeError, AttributeError):
            layout = Layout(self._tensors)
            if layout.addresses == [tensor.data_ptr() for tensor in plain]:  # else these are copies
                self._layout = layout
        return self._hashed()

    def again(self) -> list[str] | None:
        """Those of the lists of the last time; None if a tensor does not lie where it lay then."""
        return self._hashed() if self._layout is not None and self._layout.is_of(self._tensors) else None

    def _hashed(self) -> list[str]:
        found = []
        for header, memories, are_small in self._read:
            hasher = xxhash.xxh3_128(header)
            if not are_small:
                # In one call a large tensor is read faster than by a hasher that keeps a state (by 7 % at 256 MiB).
                memories = [m if len(m) < LARGE_BYTES else xxhash.xxh3_128_digest(m) for m in memories]
            for _ in map(hasher.update, memories):
                pass
            found.append(hasher.hexdigest())
        return found


def digest_of(names: Sequence[object], tensors: Sequence[torch.Tensor]) -> str:
    """See ``Digests.of``."""
    return Digests().of([(names, tensors)])[0]


def extended(digest: str, beside: bytes) -> str:
    """A digest over what ``digest`` is of and what is ``beside`` it; the same one if that is empty."""
    return xxhash.xxh3_128(digest.encode() + beside).hexdigest() if beside else digest


def magnitudes(names: Iterable[str], tensors: Iterable[torch.Tensor]) -> list[tuple[str, int, float, float]]:
    """(name, number of elements, sum, L2 norm) of each floating-point tensor, in float64.

    What is left to compare where bytes may differ: enough to bound a relative difference, and a few numbers a tensor.
    """
    found = []
    for name, tensor in zip(names, tensors, strict=True):
        if tensor.is_floating_point():
            values = _readable(tensor.values() if tensor.is_nested else tensor).double()
            found.append((name, values.numel(), float(values.sum()), float(values.norm())))
    return found


def _readable(tensor: torch.Tensor) -> torch.Tensor:
    """As ``_plain``; empty as well if it cannot be read, which is said."""
    return read(f"a {type(tensor).__name__} of {tensor.layout}", partial(_plain, tensor), torch.empty(0))


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in one piece of this process's memory: the tensor's own if it is that. Empty if it has none."""
    if tensor.is_meta or torch.nn.parameter.is_lazy(tensor):
        return torch.empty(0, dtype=tensor.dtype)
    tensor = tensor.detach()
    if tensor.is_nested and tensor.layout is torch.strided:
        parts = tensor.unbind()
        return _joined((*parts, *(torch.tensor(part.shape) for part in parts)))
    if tensor.layout is not torch.strided and not tensor.is_nested:
        tensor = tensor.to_dense()
    if (flatten := getattr(tensor, "__tensor_flatten__", None)) is not None and not hasattr(tensor, "to_local"):
        return _joined(getattr(tensor, name) for name in flatten()[0])  # it has no memory of its own
    if (to_local := getattr(tensor, "to_local", None)) is not None:  # a DTensor: this rank's shard
        tensor = to_local()
    plain = tensor.cpu().contiguous()
    if plain.numel() and not plain.data_ptr():  # freed, or no memory
        return torch.empty(0, dtype=tensor.dtype)
    if plain.is_quantized:
        return _joined((plain.int_repr(), *_scales(plain)))
    return plain.resolve_conj().resolve_neg()  # a lazy conjugate lies in the memory of what it was made of


def _joined(parts: Iterable[torch.Tensor]) -> torch.Tensor:
    """The bytes of them all."""
    plain = [_plain(part).flatten() for part in parts]
    return torch.cat([part.view(torch.uint8) for part in plain if part.numel()] or [torch.empty(0)])


def _scales(quantized: torch.Tensor) -> Iterator[torch.Tensor]:
    """What its integers stand for: scales, zero points, and of which dimension."""
    if quantized.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        yield torch.tensor(quantized.q_scale(), dtype=torch.float64)
        yield torch.tensor(quantized.q_zero_point())
    else:
        yield quantized.q_per_channel_scales()
        yield quantized.q_per_channel_zero_points()
        yield torch.tensor(quantized.q_per_channel_axis())


def _memory(tensor: torch.Tensor) -> Any:
    """The tensor's own memory, without a copy; numpy could not take bfloat16."""
    size_bytes = tensor.numel() * tensor.element_size()
    return (ctypes.c_char * size_bytes).from_address(tensor.data_ptr()) if size_bytes else b""
