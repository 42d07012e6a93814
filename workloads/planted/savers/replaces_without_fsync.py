"""Written aside and moved into place, yet never synced: the new name can be durable before its bytes are."""

import os
from pathlib import Path
from typing import Any

import torch

steps = (1, 2)


def save(directory: str, step: int) -> None:
    path = Path(directory, "last.pt")
    temporary = path.with_suffix(".tmp")
    torch.save({"step": step, "weight": torch.full((64, 64), float(step))}, temporary)
    temporary.replace(path)
    fd = os.open(directory, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def load(directory: str) -> Any:
    path = Path(directory, "last.pt")
    return torch.load(path, weights_only=True) if path.exists() else None
