"""Every random state that a training step may draw from, as plain data that a load without code accepts."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch


def rng_state() -> dict[str, Any]:
    """The states of Python, of numpy if it was imported, of torch on the CPU and on the CUDA devices in use.

    Returns:
        ``python``: (version, 625 numbers, number or None); ``torch``: uint8 tensor; ``numpy``, ``cuda`` where there
        are any: a tuple whose second item is the key as an int64 tensor; {device index: uint8 tensor}. No tensor
        shares memory with the live state.
    """
    state: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state().clone()}
    if (numpy := sys.modules.get("numpy")) is not None:
        name, key, *rest = numpy.random.get_state()
        state["numpy"] = (name, torch.tensor(key.tolist(), dtype=torch.int64), *rest)
    if devices := cuda_devices_in_use():
        state["cuda"] = {index: torch.cuda.get_rng_state(index).clone() for index in devices}
    return state


def set_rng_state(state: dict[str, Any]) -> None:
    """Go on where ``rng_state`` was taken. Do it last: nothing may draw between here and the next update.

    Raises:
        ValueError: it holds CUDA states that this process has no device for.
    """
    cuda: dict[int, torch.Tensor] = state.get("cuda", {})
    if len(cuda) == 1 and torch.cuda.is_available():  # a rank's one device may have another number after a restart
        cuda = {torch.cuda.current_device(): next(iter(cuda.values()))}
    if cuda and max(cuda) >= torch.cuda.device_count():
        saved = ", ".join(map(str, sorted(cuda)))
        raise ValueError(
            f"the random state is of CUDA devices {saved}, but this process has {torch.cuda.device_count()}; "
            "resume on as many devices as it was saved on"
        )
    version, numbers, gauss_next = state["python"]
    random.setstate((version, tuple(numbers), gauss_next))
    torch.set_rng_state(state["torch"])
    if "numpy" in state:
        import numpy

        name, key, *rest = state["numpy"]
        numpy.random.set_state((name, numpy.array(key.tolist(), dtype=numpy.uint32), *rest))
    for index, device_state in cuda.items():
        torch.cuda.set_rng_state(device_state, index)


def seed_rng(seed: int) -> None:
    """Seed every generator whose state ``rng_state`` takes: one that is left out differs from run to run."""
    random.seed(seed)
    torch.manual_seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % 2**32)  # it takes no more


def cuda_devices_in_use() -> list[int]:
    """Devices on which this process has memory, and its current one; none if it has not started CUDA."""
    if not torch.cuda.is_initialized():
        return []
    current = torch.cuda.current_device()
    return [i for i in range(torch.cuda.device_count()) if i == current or torch.cuda.memory_reserved(i) > 0]
