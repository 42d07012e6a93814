"""torch.save to a temporary name, then os.replace: the usual way to be safe from a kill; nothing is synced."""

from pathlib import Path
from typing import Any

import torch


def save(directory: str, step: int) -> None:
    state = {"step": step, "weights": torch.full((64, 64), float(step)), "bias": torch.full((64,), step / 10)}
    temporary = Path(directory, "last.pt.tmp")
    torch.save(state, temporary)
    temporary.replace(Path(directory, "last.pt"))


def load(directory: str) -> Any:
    path = Path(directory, "last.pt")
    return torch.load(path) if path.exists() else None
