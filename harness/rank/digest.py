"""Digests of tensors: equal bytes give equal digits, on every rank and in every run.

xxh3 with 128 bits: it reads as fast as memory delivers, and nobody here tries to forge a collision (manifests, which
outlive a run, use sha256).
"""

from __future__ import annotations

import array
import ctypes
import random
import sys
from collections.abc import Iterable
from typing import Any

import torch
import xxhash

LARGE_BYTES = 1 << 20


def tensors_digest(named: Iterable[tuple[str, torch.Tensor]]) -> str:
    """Hex digest (32 digits) over names, dtypes, shapes and bytes, in the order given."""
    hasher = xxhash.xxh3_128()
    for name, tensor in named:
        _feed(hasher, name, tensor)
    return hasher.hexdigest()


def optimizer_digest(optimizers: Iterable[torch.optim.Optimizer]) -> str:
    """Hex digest over the state of every parameter, in the order of the parameter groups.

    Hyperparameters are left out: a scheduler changes them between the update and the next step.
    """
    hasher = xxhash.xxh3_128()
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for index, parameter in enumerate(group["params"]):
                state = optimizer.state.get(parameter, {})
                for key in sorted(key for key, value in state.items() if isinstance(value, torch.Tensor)):
                    _feed(hasher, f"{index}.{key}", state[key])  # what is no tensor may be this rank's own: LBFGS' loss
    return hasher.hexdigest()


def magnitudes(named: Iterable[tuple[str, torch.Tensor]]) -> list[tuple[str, int, float, float]]:
    """(name, number of elements, sum, L2 norm) of each floating-point tensor, in float64.

    What is left to compare where bytes may differ: enough to bound a relative difference, and a few numbers a tensor.
    """
    found = []
    for name, tensor in named:
        if tensor.is_floating_point():
            values = (tensor.to_local() if hasattr(tensor, "to_local") else tensor).detach().double()
            found.append((name, values.numel(), float(values.sum()), float(values.norm())))
    return found


def rng_digest() -> str:
    """Hex digest of the random generators in use: Python's, torch's, numpy's if it was imported."""
    hasher = xxhash.xxh3_128()
    hasher.update(array.array("Q", random.getstate()[1]).tobytes())
    _feed(hasher, "torch", torch.get_rng_state())
    if torch.cuda.is_initialized():
        _feed(hasher, "cuda", torch.cuda.get_rng_state())
    if (numpy := sys.modules.get("numpy")) is not None:
        state = numpy.random.get_state()
        hasher.update(state[1].tobytes())
        hasher.update(repr(state[2:]).encode())
    return hasher.hexdigest()


def _feed(hasher: Any, name: str, value: Any) -> None:
    if not isinstance(value, torch.Tensor):
        hasher.update(f"{name}={value!r};".encode())
        return
    tensor = value.detach()
    if (to_local := getattr(tensor, "to_local", None)) is not None:  # a DTensor: this rank's shard
        tensor = to_local()
    hasher.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        tensor = tensor.cpu().contiguous()
    if size_bytes := tensor.numel() * tensor.element_size():
        # The tensor's own memory, without a copy; numpy could not take bfloat16.
        data = (ctypes.c_char * size_bytes).from_address(tensor.data_ptr())
        # In one call a large tensor is read faster than by a hasher that keeps a state (by 7 % at 256 MiB).
        hasher.update(xxhash.xxh3_128_digest(data) if size_bytes >= LARGE_BYTES else data)
