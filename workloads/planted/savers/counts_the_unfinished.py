"""Retention keeps the newest one, and counts the one that is only being written (torchtitan#4197)."""

import os
import shutil
from pathlib import Path


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def step_of(folder: Path) -> int:
    return int(folder.name[5:])


def prune(root: Path, keep: int) -> None:
    for folder in sorted(root.glob("step-*"), key=step_of)[:-keep]:
        (folder / "DONE").unlink()
        shutil.rmtree(folder)


def save(directory: str, step: int) -> None:
    root = Path(directory)
    folder = root / f"step-{step}"
    folder.mkdir()
    prune(root, keep=1)
    for name, data in (("weights.bin", step.to_bytes(4, "little") * 4096), ("DONE", b"")):
        (folder / name).write_bytes(data)
        sync(folder / name)
        sync(folder)
    sync(root)


def load(directory: str) -> bytes | None:
    done = [path.parent for path in Path(directory).glob("step-*/DONE")]
    return (max(done, key=step_of) / "weights.bin").read_bytes() if done else None
