"""A temporary file that a crash left makes the reader give up, though complete checkpoints are there (flax#1200)."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def save(directory: str, step: int) -> None:
    root = Path(directory)
    temporary = root / f"ckpt_{step}.tmp"
    temporary.write_bytes(step.to_bytes(4, "little") * 4096)
    sync(temporary)
    temporary.rename(root / f"ckpt_{step}")
    sync(root)


def load(directory: str) -> bytes | None:
    steps = [int(path.name.removeprefix("ckpt_")) for path in Path(directory).glob("ckpt_*")]
    return Path(directory, f"ckpt_{max(steps)}").read_bytes() if steps else None
