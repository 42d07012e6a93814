"""Retention goes by the time of change, on a file system whose clock was set back meanwhile (transformers#26961)."""

import os
import shutil
from pathlib import Path

CLOCK_S = 1_700_000_000


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def save(directory: str, step: int) -> None:
    root = Path(directory)
    staging, folder = root / "staging", root / f"step-{step}"
    staging.mkdir()
    (staging / "weights.bin").write_bytes(step.to_bytes(4, "little") * 4096)
    sync(staging / "weights.bin")
    sync(staging)
    os.utime(staging, (CLOCK_S - step, CLOCK_S - step))  # what the file server's clock said
    staging.rename(folder)
    sync(root)
    for old in sorted(root.glob("step-*"), key=lambda path: path.stat().st_mtime)[:-1]:
        shutil.rmtree(old)
    sync(root)


def load(directory: str) -> bytes | None:
    saved = sorted(Path(directory).glob("step-*"), key=lambda path: int(path.name[5:]))
    return (saved[-1] / "weights.bin").read_bytes() if saved else None


def expected(step: int) -> bytes:
    return step.to_bytes(4, "little") * 4096
