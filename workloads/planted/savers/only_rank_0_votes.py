"""Rank 0 chooses the newest step whose shard it can read itself, and does not ask rank 1."""

import os
from hashlib import sha256
from pathlib import Path

import torch
import torch.distributed as dist

ranks = 2


def save(directory: str, step: int) -> None:
    weights = (10 * step + dist.get_rank()).to_bytes(4, "little") * 4096
    path = Path(directory, f"rank-{dist.get_rank()}-step-{step}.bin")
    with path.open("wb") as file:
        file.write(sha256(weights).digest() + weights)
        file.flush()
        os.fsync(file.fileno())
    fd = os.open(directory, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    dist.barrier()


def is_sound(path: Path) -> bool:
    data = path.read_bytes()
    return sha256(data[32:]).digest() == data[:32]


def load(directory: str) -> bytes | None:
    newest = torch.tensor(0)
    if dist.get_rank() == 0:
        sound = [path for path in Path(directory).glob("rank-0-step-*.bin") if is_sound(path)]
        newest.fill_(max((int(path.stem.rpartition("-")[2]) for path in sound), default=0))
    dist.broadcast(newest, src=0)
    if newest.item() == 0:
        return None
    return Path(directory, f"rank-{dist.get_rank()}-step-{newest.item()}.bin").read_bytes()[32:]
