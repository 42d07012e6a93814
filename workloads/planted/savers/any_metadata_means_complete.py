"""A checkpoint with `.metadata` counts as complete, also where it is that of the save before (torchtitan#315)."""

import os
from pathlib import Path
from typing import Any

import torch


def write(path: Path, state: dict[str, Any]) -> None:
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    fd = os.open(path.parent, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def save(directory: str, step: int) -> None:
    for shard in range(2):
        write(Path(directory, f"__{shard}_0.distcp"), {"weight": torch.full((32, 64), float(step))})
    write(Path(directory, ".metadata"), {"shards": 2})


def load(directory: str) -> Any:
    metadata = Path(directory, ".metadata")
    if not metadata.exists():
        return None
    shards = range(torch.load(metadata, weights_only=True)["shards"])
    return [torch.load(Path(directory, f"__{shard}_0.distcp"), weights_only=True) for shard in shards]
