"""torch.distributed.checkpoint over the last checkpoint: the same directory for all steps, as its default allows."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp


def state(value: float) -> dict[str, Any]:
    return {"step": int(value), "weights": torch.full((64, 64), value), "bias": torch.full((64,), value / 10)}


def save(directory: str, step: int) -> None:
    dcp.save(state(float(step)), checkpoint_id=Path(directory, "last"))


def load(directory: str) -> Any:
    path = Path(directory, "last")
    if not Path(path, ".metadata").exists():
        return None
    loaded = state(0.0)
    dcp.load(loaded, checkpoint_id=path)
    return loaded
