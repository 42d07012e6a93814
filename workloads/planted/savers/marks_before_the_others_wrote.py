"""Rank 0 writes the marker when its own shard is durable, without waiting for rank 1."""

import json
import os
from pathlib import Path
from typing import Any

import torch.distributed as dist

ranks = 2
steps = (1, 2)


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    sync(path)
    sync(path.parent)


def save(directory: str, step: int) -> None:
    rank, folder = dist.get_rank(), Path(directory, f"step-{step}")
    if rank == 0:
        folder.mkdir()
        sync(folder.parent)
    dist.barrier()
    write(folder / f"shard-{rank}.json", json.dumps({"rank": rank, "weights": [step] * 2000}).encode())
    if rank == 0:
        write(folder / "DONE", b"")
    dist.barrier()


def load(directory: str) -> Any:
    done = [path.parent for path in Path(directory).glob("step-*/DONE")]
    if not done:
        return None
    newest = max(done, key=lambda folder: int(folder.name[5:]))
    return json.loads((newest / f"shard-{dist.get_rank()}.json").read_text())
