"""A checkpoint as Megatron-LM keeps it: ``iter_0000001/mp_rank_00/model_optim_rng.pt``, and then a tracker file that
holds the newest iteration's number and that load follows. Written for this test after its layout; not its code."""

from pathlib import Path
from typing import Any

import torch

TRACKER = "latest_checkpointed_iteration.txt"


def save(directory: str, step: int) -> None:
    state = {
        "iteration": step,
        "model": torch.full((64, 64), float(step)),
        "optimizer": torch.full((64,), step / 10),
    }
    path = Path(directory, f"iter_{step:07d}", "mp_rank_00", "model_optim_rng.pt")
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path)
    Path(directory, TRACKER).write_text(str(step))


def load(directory: str) -> Any:
    tracker = Path(directory, TRACKER)
    if not tracker.exists():  # "will not load any checkpoints and will start from random"
        return None
    return torch.load(Path(directory, f"iter_{int(tracker.read_text()):07d}", "mp_rank_00", "model_optim_rng.pt"))
