"""Each rank writes and syncs its shard; rank 0 publishes when both have said so; both load what both can read."""

import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

ranks = 2


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def save(directory: str, step: int) -> None:
    rank, root = dist.get_rank(), Path(directory)
    staging = root / f".step-{step}"
    if rank == 0:
        staging.mkdir()
        sync(root)
    dist.barrier()
    weights = (10 * step + rank).to_bytes(4, "little") * 4096
    shard = staging / f"shard-{rank}"
    shard.write_bytes(sha256(weights).digest() + weights)
    sync(shard)
    dist.barrier()
    if rank == 0:
        sync(staging)
        staging.rename(root / f"step-{step}")
        sync(root)
    dist.barrier()


def read_shard(folder: Path) -> bytes | None:
    path = folder / f"shard-{dist.get_rank()}"
    data = path.read_bytes() if path.exists() else b""
    return data[32:] if sha256(data[32:]).digest() == data[:32] else None


def load(directory: str) -> bytes | None:
    found: list[Any] = [sorted((int(path.name[5:]) for path in Path(directory).glob("step-*")), reverse=True)]
    dist.broadcast_object_list(found, src=0)  # rank 0 has looked for both
    for step in found[0]:
        shard = read_shard(Path(directory, f"step-{step}"))
        is_sound = torch.tensor(shard is not None, dtype=torch.int32)
        dist.all_reduce(is_sound, dist.ReduceOp.MIN)
        if is_sound.item():
            return shard
    return None
