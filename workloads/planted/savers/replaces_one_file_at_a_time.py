"""Weights and optimizer are replaced one after the other: between the two they are of different steps."""

import os
from pathlib import Path
from typing import Any

import torch


def write(path: Path, state: dict[str, Any]) -> None:
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    fd = os.open(path.parent, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def save(directory: str, step: int) -> None:
    write(Path(directory, "weights.pt"), {"weight": torch.full((32, 64), float(step))})
    write(Path(directory, "optimizer.pt"), {"step": step, "exp_avg": torch.full((32, 64), step / 2)})


def load(directory: str) -> Any:
    paths = [Path(directory, name) for name in ("weights.pt", "optimizer.pt")]
    if not all(path.exists() for path in paths):
        return None
    return [torch.load(path, weights_only=True) for path in paths]
