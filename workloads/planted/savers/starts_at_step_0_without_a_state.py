"""Weights without the file that says their step are trained from step 0 on (TinyZero#82)."""

import os
from pathlib import Path
from typing import Any

import torch


def write(path: Path, state: Any) -> None:
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    fd = os.open(path.parent, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def save(directory: str, step: int) -> None:
    write(Path(directory, f"weights-{step}.pt"), torch.full((64, 64), float(step)))
    write(Path(directory, f"state-{step}.pt"), {"step": step})


def load(directory: str) -> Any:
    found = sorted(Path(directory).glob("weights-*.pt"), key=lambda path: int(path.stem[8:]))
    if not found:
        return None
    state = found[-1].with_name(found[-1].name.replace("weights", "state"))
    step = torch.load(state, weights_only=True)["step"] if state.exists() else 0
    return step, torch.load(found[-1], weights_only=True)
