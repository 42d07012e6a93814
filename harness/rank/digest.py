"""Digests of tensors: equal bytes give equal digests, on every rank and in every run.

xxh3 with 128 bits: it reads as fast as memory delivers, and nobody here tries to forge a collision (manifests, which
outlive a run, use sha256).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import torch
import xxhash

LARGE_BYTES = 1 << 20
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
_Tensor: Any = torch.Tensor
_address, _is_contiguous = _Tensor.data_ptr, _Tensor.is_contiguous
_shape, _dtype = _Tensor.shape.__get__, _Tensor.dtype.__get__


class Digest:
    """The digest of a list of tensors that is taken again and again.

    Mostly they are the same ones in the same places, and to prepare to read a small one takes longer than to read it.
    """

    def __init__(self) -> None:
        self._names: list[object] = []
        self._layout: list[object] | None = None  # of the tensors when they were last prepared
        self._header = b""
        self._memories: list[Any] = []

    def of(self, names: Sequence[object], tensors: Sequence[torch.Tensor]) -> str:
        """Hex digest (32 digits) over names, dtypes, shapes and bytes, in the order given."""
        # All that the tensors' own memory and its meaning depend on; None if one of them is no stock tensor.
        layout: list[object] | None = None
        if _PLAIN.issuperset(map(type, tensors)):
            with suppress(RuntimeError):  # one has no memory of its own: it is sparse, or on the meta device
                layout = [*map(_address, tensors), *map(_shape, tensors), *map(_dtype, tensors)]
                layout += map(_is_contiguous, tensors)
        if layout is None or layout != self._layout or names != self._names:
            tensors = [_plain(tensor) for tensor in tensors]
            self._prepare(names, tensors)
            is_in_place = layout is not None and layout[: len(tensors)] == [*map(_address, tensors)]
            self._layout = layout if is_in_place else None  # else these are passing copies
        hasher = xxhash.xxh3_128(self._header)
        for memory in self._memories:
            # In one call a large tensor is read faster than by a hasher that keeps a state (by 7 % at 256 MiB).
            hasher.update(memory if len(memory) < LARGE_BYTES else xxhash.xxh3_128_digest(memory))
        return hasher.hexdigest()

    def _prepare(self, names: Sequence[object], tensors: Sequence[torch.Tensor]) -> None:
        self._names = list(names)
        self._header = repr([names, [(tuple(t.shape), str(t.dtype)) for t in tensors]]).encode()
        self._memories = [_memory(tensor) for tensor in tensors]


class OptimizerTensors:
    """Names and tensors of every parameter's state, in the order of the parameter groups.

    Hyperparameters are left out: a scheduler changes them between the update and the next step. What is no tensor may
    be this rank's own: LBFGS' loss.
    """

    def __init__(self) -> None:
        self.names: list[object] = []
        self.tensors: list[torch.Tensor] = []
        self._held: list[object] = []  # all that they were found from: an identity is one while its object lives
        self._identities: list[int] = []

    def look(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        """Find them anew if there are others now."""
        held: list[object] = []
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                held += group["params"]
            for state in optimizer.state.values():
                if isinstance(state, dict):  # some keep other things beside their parameters' states
                    held += state.keys()
                    held += state.values()
        if (identities := [*map(id, held)]) != self._identities:
            self._held, self._identities = held, identities
            self._find(optimizers)

    def _find(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        self.names, self.tensors = [], []
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                for index, state in enumerate(map(optimizer.state.get, group["params"])):
                    if state:
                        keys = sorted(key for key, value in state.items() if isinstance(value, torch.Tensor))
                        self.names += [index, *keys]
                        self.tensors += [state[key] for key in keys]


def magnitudes(names: Iterable[str], tensors: Iterable[torch.Tensor]) -> list[tuple[str, int, float, float]]:
    """(name, number of elements, sum, L2 norm) of each floating-point tensor, in float64.

    What is left to compare where bytes may differ: enough to bound a relative difference, and a few numbers a tensor.
    """
    found = []
    for name, tensor in zip(names, tensors, strict=True):
        if tensor.is_floating_point():
            values = _plain(tensor).double()
            found.append((name, values.numel(), float(values.sum()), float(values.norm())))
    return found


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in one piece of this process's memory: the tensor's own if it is that. Empty if it has none."""
    if tensor.is_meta or torch.nn.parameter.is_lazy(tensor):
        return torch.empty(0, dtype=tensor.dtype)
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if (to_local := getattr(tensor, "to_local", None)) is not None:  # a DTensor: this rank's shard
        tensor = to_local()
    return tensor.cpu().contiguous()


def _memory(tensor: torch.Tensor) -> Any:
    """The tensor's own memory, without a copy; numpy could not take bfloat16."""
    size_bytes = tensor.numel() * tensor.element_size()
    return (ctypes.c_char * size_bytes).from_address(tensor.data_ptr()) if size_bytes else b""
