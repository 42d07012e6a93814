"""The weights saved are those of now, the optimizer's part was taken before the update (NeMo-RL#4183)."""

import os
from pathlib import Path
from typing import Any

import torch

weight = torch.zeros(32, 64)
momentum = torch.zeros(32, 64)


def save(directory: str, step: int) -> None:
    optimizer = {"step": step - 1, "momentum": momentum.clone()}
    weight.fill_(float(step))
    momentum.fill_(step / 2)
    path = Path(directory, "last.pt")
    with path.with_suffix(".tmp").open("wb") as file:
        torch.save({"step": step, "weight": weight, "optimizer": optimizer}, file)
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
    optimizer = {"step": step, "momentum": torch.full((32, 64), step / 2)}
    return {"step": step, "weight": torch.full((32, 64), float(step)), "optimizer": optimizer}
