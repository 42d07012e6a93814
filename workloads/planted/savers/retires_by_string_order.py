"""Retention sorts names as text, and 10000 comes before 9900 (transformers#27138)."""

import os
from pathlib import Path

steps = (9800, 9900, 10000)


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def save(directory: str, step: int) -> None:
    root = Path(directory)
    temporary = root / "checkpoint.tmp"
    temporary.write_bytes(step.to_bytes(4, "little") * 4096)
    sync(temporary)
    temporary.rename(root / f"checkpoint-{step}")
    sync(root)
    for old in sorted(root.glob("checkpoint-*"))[:-1]:
        old.unlink()
    sync(root)


def load(directory: str) -> bytes | None:
    saved = sorted(Path(directory).glob("checkpoint-*"), key=lambda path: int(path.name[11:]))
    return saved[-1].read_bytes() if saved else None


def expected(step: int) -> bytes:
    return step.to_bytes(4, "little") * 4096
