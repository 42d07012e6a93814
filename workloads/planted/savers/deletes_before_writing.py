"""One checkpoint is kept, and the old one goes before the new one comes (pytorch-lightning#1150)."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def save(directory: str, step: int) -> None:
    root = Path(directory)
    for old in root.glob("step-*.bin"):
        old.unlink()
    temporary = root / "step.tmp"
    temporary.write_bytes(step.to_bytes(4, "little") * 4096)
    sync(temporary)
    temporary.rename(root / f"step-{step}.bin")
    sync(root)


def load(directory: str) -> bytes | None:
    saved = sorted(Path(directory).glob("step-*.bin"), key=lambda path: int(path.stem[5:]))
    return saved[-1].read_bytes() if saved else None
