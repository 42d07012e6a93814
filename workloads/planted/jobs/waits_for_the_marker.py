"""The load waits for the marker of the newest checkpoint, and after a crash nobody writes it."""

import time
from pathlib import Path

import torch

from workloads.planted.jobs import training

ranks, steps = training.RANKS, training.SAVED[:1]


def save(directory: Path, step: int) -> None:
    path = directory / f"step-{step}.pt"
    state = training.state_at(step)
    if training.rank() == 0:
        torch.save(state, path)
        training.sync(path)
        training.sync(directory)
        path.with_suffix(".done").touch()
        training.sync(directory)
    training.barrier()


def load(directory: Path) -> training.State | None:
    saved = sorted(directory.glob("step-*.pt"))
    if not saved:
        return None
    while not saved[-1].with_suffix(".done").exists():
        time.sleep(0.01)  # it is still being written
    state: training.State = torch.load(saved[-1])
    return state


if __name__ == "__main__":
    training.run(save, load)
