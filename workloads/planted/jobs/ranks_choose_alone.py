"""Each rank saves for itself and goes on from its own newest: after a crash the ranks may be at different steps."""

from pathlib import Path

import torch

from workloads.planted.jobs import training

ranks, steps = 2, training.SAVED


def save(directory: Path, step: int) -> None:
    path = directory / f"rank-{training.rank()}-step-{step}.pt"
    torch.save(training.state_at(step), path.with_suffix(".tmp"))
    training.sync(path.with_suffix(".tmp"))
    path.with_suffix(".tmp").rename(path)
    training.sync(directory)
    training.barrier()


def load(directory: Path) -> training.State | None:
    mine = sorted(directory.glob(f"rank-{training.rank()}-step-*.pt"))
    state: training.State | None = torch.load(mine[-1]) if mine else None
    return state


if __name__ == "__main__":
    training.run(save, load)
