"""Rank 0 syncs its shard before it writes the marker; rank 1 has only handed its own to the system."""

import os
from pathlib import Path

import torch.distributed as dist

ranks = 2
steps = (1, 2)


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def save(directory: str, step: int) -> None:
    rank, root = dist.get_rank(), Path(directory)
    folder = root / f"step-{step}"
    if rank == 0:
        folder.mkdir()
    dist.barrier()
    shard = folder / f"shard-{rank}.bin"
    shard.write_bytes((10 * step + rank).to_bytes(4, "little") * 4096)
    if rank == 0:
        sync(shard)
    dist.barrier()
    if rank == 0:
        (folder / "DONE").touch()
        sync(folder / "DONE")
        sync(folder)
        sync(root)
    dist.barrier()


def load(directory: str) -> bytes | None:
    done = [path.parent for path in Path(directory).glob("step-*/DONE")]
    if not done:
        return None
    newest = max(done, key=lambda folder: int(folder.name[5:]))
    return (newest / f"shard-{dist.get_rank()}.bin").read_bytes()
