"""Written, synced and renamed, but the directory is not synced: a save that was acknowledged may be gone."""

from pathlib import Path

import torch

from workloads.planted.jobs import training

ranks, steps = training.RANKS, training.SAVED


def save(directory: Path, step: int) -> None:
    state = training.state_at(step)
    if training.rank() == 0:
        torch.save(state, directory / "last.tmp")
        training.sync(directory / "last.tmp")
        (directory / "last.tmp").replace(directory / "last.pt")
    training.barrier()


def load(directory: Path) -> training.State | None:
    path = directory / "last.pt"
    state: training.State | None = torch.load(path) if path.exists() else None
    return state


if __name__ == "__main__":
    training.run(save, load)
