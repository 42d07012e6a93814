"""The directory with the highest number is the one to resume from, whatever is in it (transformers#35782)."""

import json
import os
from pathlib import Path
from typing import Any

import torch

steps = (1, 2)


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def save(directory: str, step: int) -> None:
    folder = Path(directory, f"checkpoint-{step}")
    folder.mkdir()
    torch.save({"weight": torch.full((64, 64), float(step))}, folder / "model.pt")
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    for path in (folder / "model.pt", folder / "trainer_state.json", folder, Path(directory)):
        sync(path)


def load(directory: str) -> Any:
    folders = list(Path(directory).glob("checkpoint-*"))
    if not folders:
        return None
    newest = max(folders, key=lambda folder: int(folder.name[11:]))
    state = json.loads((newest / "trainer_state.json").read_text())
    return state, torch.load(newest / "model.pt", weights_only=True)
