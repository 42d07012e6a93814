"""The state dict of the first save is kept and saved again and again, under new steps (NeMo-RL#3312)."""

import os
from pathlib import Path
from typing import Any

import torch

weight = torch.zeros(64, 64)
cache: dict[str, torch.Tensor] = {}


def state_dict() -> dict[str, torch.Tensor]:
    if not cache:
        cache["weight"] = weight.clone()
    return cache


def save(directory: str, step: int) -> None:
    weight.fill_(float(step))
    path = Path(directory, "last.pt")
    with path.with_suffix(".tmp").open("wb") as file:
        torch.save({"step": step, "model": state_dict()}, file)
        file.flush()
        os.fsync(file.fileno())
    path.with_suffix(".tmp").replace(path)
    fd = os.open(directory, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def load(directory: str) -> Any:
    path = Path(directory, "last.pt")
    return torch.load(path, weights_only=True) if path.exists() else None


def expected(step: int) -> Any:
    return {"step": step, "model": {"weight": torch.full((64, 64), float(step))}}
