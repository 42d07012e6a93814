"""Retention done right: the new one durable first, then the oldest renamed out of sight, and only then removed."""

import os
import shutil
from pathlib import Path


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def saved(directory: str) -> list[Path]:
    return sorted(Path(directory).glob("step-*"), key=lambda folder: int(folder.name[5:]))


def save(directory: str, step: int) -> None:
    root = Path(directory)
    staging = root / f".step-{step}"
    staging.mkdir()
    for part in ("weights", "optimizer"):
        (staging / part).write_bytes(f"{part} {step:9}\n".encode() * 512)
        sync(staging / part)
    sync(staging)
    staging.rename(root / f"step-{step}")
    sync(root)
    for folder in saved(directory)[:-2]:
        trash = folder.rename(root / f".trash-{folder.name}")
        sync(root)
        shutil.rmtree(trash)


def load(directory: str) -> list[bytes] | None:
    folders = saved(directory)
    return [(folders[-1] / part).read_bytes() for part in ("weights", "optimizer")] if folders else None
