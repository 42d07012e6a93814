"""The marker of a complete checkpoint is written before the checkpoint."""

import os
from pathlib import Path
from typing import Any

import torch

steps = (1, 2)


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def save(directory: str, step: int) -> None:
    folder = Path(directory, f"step-{step}")
    folder.mkdir()
    marker, weights = folder / "DONE", folder / "weights.pt"
    marker.touch()
    sync(marker)
    torch.save({"step": step, "weight": torch.full((64, 64), float(step))}, weights)
    sync(weights)
    sync(folder)
    sync(Path(directory))


def load(directory: str) -> Any:
    done = [path.parent for path in Path(directory).glob("step-*/DONE")]
    if not done:
        return None
    newest = max(done, key=lambda folder: int(folder.name[5:]))
    return torch.load(newest / "weights.pt", weights_only=True)
