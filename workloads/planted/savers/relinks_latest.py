"""The link `latest` is removed and made again: between the two there is none."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def save(directory: str, step: int) -> None:
    root = Path(directory)
    weights, latest = root / f"step-{step}.bin", root / "latest"
    weights.write_bytes(step.to_bytes(4, "little") * 4096)
    sync(weights)
    sync(root)
    latest.unlink(missing_ok=True)
    latest.symlink_to(weights.name)
    sync(root)


def load(directory: str) -> bytes | None:
    latest = Path(directory, "latest")
    return latest.read_bytes() if latest.exists() else None
