"""torch.save done right: into a temporary file, synced, moved over the old one, the directory synced."""

import os
from pathlib import Path
from typing import Any

import torch


def save(directory: str, step: int) -> None:
    path = Path(directory, "last.pt")
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        torch.save({"step": step, "weight": torch.full((64, 64), float(step))}, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    fd = os.open(directory, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def load(directory: str) -> Any:
    path = Path(directory, "last.pt")
    return torch.load(path, weights_only=True) if path.exists() else None
