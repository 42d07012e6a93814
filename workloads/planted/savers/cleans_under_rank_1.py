"""Rank 0 clears the directory when rank 1 has already written into it (pytorch#196591)."""

import os
import shutil
from pathlib import Path

import torch.distributed as dist

ranks = 2


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def save(directory: str, step: int) -> None:
    rank, root = dist.get_rank(), Path(directory)
    staging = root / "staging"
    staging.mkdir(exist_ok=True)
    if rank == 1:
        write_shard(staging, rank, step)
    dist.barrier()
    if rank == 0:
        shutil.rmtree(staging)  # of a save that did not get through
        staging.mkdir()
        write_shard(staging, rank, step)
        staging.rename(root / f"step-{step}")
        sync(root)
    dist.barrier()


def write_shard(folder: Path, rank: int, step: int) -> None:
    shard = folder / f"shard-{rank}.bin"
    shard.write_bytes((10 * step + rank).to_bytes(4, "little") * 4096)
    sync(shard)
    sync(folder)


def load(directory: str) -> bytes | None:
    folders = sorted(Path(directory).glob("step-*"), key=lambda folder: int(folder.name[5:]))
    return (folders[-1] / f"shard-{dist.get_rank()}.bin").read_bytes() if folders else None


def expected(step: int) -> bytes:
    return (10 * step + dist.get_rank()).to_bytes(4, "little") * 4096
