"""Digests of tensors: equal bytes give equal digests, on every rank and in every run.

xxh3 with 128 bits: it reads as fast as memory delivers, and nobody here tries to forge a collision (manifests, which
outlive a run, use sha256).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from operator import is_
from typing import Any

import torch
import xxhash

from harness.rank.layout import Layout

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
        plain = [*map(_plain, self._tensors)]  # held until they are read, for they may be passing copies
        self._read, of_one_list = [], iter(plain)
        for names, tensors in lists:
            here = [next(of_one_list) for _ in tensors]
            header = repr([names, [(tuple(t.shape), str(t.dtype)) for t in here]]).encode()
            memories = [*map(_memory, here)]
            self._read.append((header, memories, all(len(memory) < LARGE_BYTES for memory in memories)))
        self._layout = None
        with suppress(ValueError, RuntimeError):
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


class OptimizerTensors:
    """Names and tensors of every parameter's state, in the order of the parameter groups.

    Hyperparameters are left out: a scheduler changes them between the update and the next step. What is no tensor may
    be this rank's own: LBFGS' loss.
    """

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer], groups: Sequence[Sequence[torch.Tensor]]) -> None:
        """``groups``: the parameters of each group of these optimizers."""
        self.names: list[object] = []
        self.tensors: list[torch.Tensor] = []
        self._sizes, held = _kept(optimizers, groups)
        self._held: list[object] = [*held]  # all that they were found from
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                for index, state in enumerate(map(optimizer.state.get, group["params"])):
                    if state:
                        keys = sorted(key for key, value in state.items() if isinstance(value, torch.Tensor))
                        self.names += [index, *keys]
                        self.tensors += [state[key] for key in keys]

    def are_those_of(
        self, optimizers: Sequence[torch.optim.Optimizer], groups: Sequence[Sequence[torch.Tensor]]
    ) -> bool:
        """Whether these optimizers have them now."""
        sizes, held = _kept(optimizers, groups)
        return sizes == self._sizes and all(map(is_, held, self._held))


def _kept(
    optimizers: Sequence[torch.optim.Optimizer], groups: Sequence[Sequence[torch.Tensor]]
) -> tuple[list[int], Iterator[object]]:
    """Sizes of the groups and of the parameters' states; what is in them, names and values."""
    # Some keep other things beside their parameters' states.
    kept = [state for optimizer in optimizers for state in optimizer.state.values() if isinstance(state, dict)]
    return [*map(len, chain(groups, kept))], chain.from_iterable(chain(groups, kept, map(dict.values, kept)))


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
    if (flatten := getattr(tensor, "__tensor_flatten__", None)) is not None and not hasattr(tensor, "to_local"):
        inner = [_plain(getattr(tensor, name)).flatten() for name in flatten()[0]]  # it has no memory of its own
        return torch.cat([part.view(torch.uint8) for part in inner if part.numel()] or [torch.empty(0)])
    if (to_local := getattr(tensor, "to_local", None)) is not None:  # a DTensor: this rank's shard
        tensor = to_local()
    plain = tensor.cpu().contiguous()
    return plain if plain.data_ptr() or not plain.numel() else torch.empty(0, dtype=tensor.dtype)  # freed, or no memory


def _memory(tensor: torch.Tensor) -> Any:
    """The tensor's own memory, without a copy; numpy could not take bfloat16."""
    size_bytes = tensor.numel() * tensor.element_size()
    return (ctypes.c_char * size_bytes).from_address(tensor.data_ptr()) if size_bytes else b""
