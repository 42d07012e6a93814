"""The old file is unlinked before the new one is renamed into its place: between the two there is none."""

import os
from pathlib import Path
from typing import Any

import torch


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def save(directory: str, step: int) -> None:
    path, temporary = Path(directory, "last.pt"), Path(directory, "last.pt.new")
    torch.save({"step": step, "weight": torch.full((64, 64), float(step))}, temporary)
    sync(temporary)
    path.unlink(missing_ok=True)
    temporary.rename(path)
    sync(Path(directory))


def load(directory: str) -> Any:
    path = Path(directory, "last.pt")
    return torch.load(path, weights_only=True) if path.exists() else None
