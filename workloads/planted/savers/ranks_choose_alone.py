"""Each rank resumes from the newest file of its own, and they may be of different steps (LlamaFactory#655)."""

import os
from pathlib import Path

import torch.distributed as dist

ranks = 2


def save(directory: str, step: int) -> None:
    path = Path(directory, f"rank-{dist.get_rank()}-step-{step}.bin")
    with path.with_suffix(".tmp").open("wb") as file:
        file.write((10 * step + dist.get_rank()).to_bytes(4, "little") * 4096)
        file.flush()
        os.fsync(file.fileno())
    path.with_suffix(".tmp").rename(path)
    fd = os.open(directory, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    dist.barrier()


def load(directory: str) -> bytes | None:
    mine = list(Path(directory).glob(f"rank-{dist.get_rank()}-step-*.bin"))
    return max(mine, key=lambda path: int(path.stem.rpartition("-")[2])).read_bytes() if mine else None
