"""Model and optimizer are replaced one after the other: a crash between leaves them at different steps."""

from pathlib import Path

import torch

from workloads.planted.jobs import training

ranks, steps = training.RANKS, training.SAVED


def save(directory: Path, step: int) -> None:
    state = training.state_at(step)
    if training.rank() == 0:
        write(directory / "model.pt", {"step": state["step"], "model": state["model"]})
        write(directory / "optimizer.pt", state["optimizer"])
    training.barrier()


def write(path: Path, part: training.State) -> None:
    draft = path.with_suffix(".tmp")
    torch.save(part, draft)
    training.sync(draft)
    draft.replace(path)
    training.sync(path.parent)


def load(directory: Path) -> training.State | None:
    model, optimizer = directory / "model.pt", directory / "optimizer.pt"
    if not (model.exists() and optimizer.exists()):
        return None
    state: training.State = torch.load(model) | {"optimizer": torch.load(optimizer)}
    return state


if __name__ == "__main__":
    training.run(save, load)
