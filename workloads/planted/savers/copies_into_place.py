"""Made in a temporary directory and then copied to its name: a copy is not a rename, and stops anywhere."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch


def save(directory: str, step: int) -> None:
    path = Path(directory, "last.pt")
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch, "last.pt")
        torch.save({"step": step, "weight": torch.full((64, 64), float(step))}, made)
        shutil.copyfile(made, path)
    for place in (path, Path(directory)):
        fd = os.open(place, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def load(directory: str) -> Any:
    path = Path(directory, "last.pt")
    return torch.load(path, weights_only=True) if path.exists() else None
