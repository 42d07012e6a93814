"""torch.save over the only checkpoint: a crash while it writes leaves nothing that loads."""

from pathlib import Path

import torch

from workloads.planted.jobs import training

ranks, steps = training.RANKS, training.SAVED


def save(directory: Path, step: int) -> None:
    state = training.state_at(step)
    if training.rank() == 0:
        torch.save(state, directory / "last.pt")
        training.sync(directory / "last.pt")
        training.sync(directory)
    training.barrier()


def load(directory: Path) -> training.State | None:
    path = directory / "last.pt"
    state: training.State | None = torch.load(path) if path.exists() else None
    return state


if __name__ == "__main__":
    training.run(save, load)
