"""The reader takes an unreadable checkpoint for none at all, and training starts from zero."""

import os
from pathlib import Path
from typing import Any

import torch

steps = (1, 2)


def save(directory: str, step: int) -> None:
    with Path(directory, "last.pt").open("wb") as file:
        torch.save({"step": step, "weight": torch.full((64, 64), float(step))}, file)
        file.flush()
        os.fsync(file.fileno())
    fd = os.open(directory, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def load(directory: str) -> Any:
    try:
        return torch.load(Path(directory, "last.pt"), weights_only=True)
    except Exception:
        return None
