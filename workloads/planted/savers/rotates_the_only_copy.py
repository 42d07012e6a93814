"""The only good copy is renamed to make room: right where a rename is atomic, and lost where it is not."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def save(directory: str, step: int) -> None:
    root = Path(directory)
    current, new = root / "current.bin", root / "new.bin"
    new.write_bytes(step.to_bytes(4, "little") * 4096)
    sync(new)
    if current.exists():
        current.rename(root / "previous.bin")
        sync(root)
    new.rename(current)
    sync(root)


def load(directory: str) -> bytes | None:
    for name in ("current.bin", "previous.bin"):
        path = Path(directory, name)
        if path.exists():
            return path.read_bytes()
    return None
