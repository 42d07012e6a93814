"""torch.save over the last checkpoint, as most training scripts do: one file, written in place."""

from pathlib import Path
from typing import Any

import torch


def save(directory: str, step: int) -> None:
    state = {"step": step, "weights": torch.full((64, 64), float(step)), "bias": torch.full((64,), step / 10)}
    torch.save(state, Path(directory, "last.pt"))


def load(directory: str) -> Any:
    path = Path(directory, "last.pt")
    return torch.load(path) if path.exists() else None
