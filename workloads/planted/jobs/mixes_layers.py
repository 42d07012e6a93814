"""Each layer is replaced by itself: a crash between two of them leaves a model that no update ever made."""

from pathlib import Path

import torch

from workloads.planted.jobs import training

ranks, steps = training.RANKS, training.SAVED


def save(directory: Path, step: int) -> None:
    state = training.state_at(step)
    rest = {name: part for name, part in state.items() if name != "model"}
    if training.rank() == 0:
        for name, tensor in state["model"].items():
            write(directory / f"model.{name}.pt", tensor)
        write(directory / "rest.pt", rest)
    training.barrier()


def write(path: Path, part: object) -> None:
    draft = path.with_suffix(".tmp")
    torch.save(part, draft)
    training.sync(draft)
    draft.replace(path)
    training.sync(path.parent)


def load(directory: Path) -> training.State | None:
    if not (directory / "rest.pt").exists():
        return None
    state: training.State = torch.load(directory / "rest.pt")
    layers = training.training().model.state_dict()
    return state | {"model": {name: torch.load(directory / f"model.{name}.pt") for name in layers}}


if __name__ == "__main__":
    training.run(save, load)
