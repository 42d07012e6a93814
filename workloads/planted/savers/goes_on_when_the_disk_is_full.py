"""A full disk shall not end the training, so the save is skipped, and nobody is told."""

import errno
import os
from hashlib import sha256
from pathlib import Path


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def save(directory: str, step: int) -> None:
    weights = step.to_bytes(4, "little") * 4096
    path = Path(directory, f"step-{step}.bin")
    temporary = path.with_suffix(".tmp")
    try:
        temporary.write_bytes(sha256(weights).digest() + weights)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EFBIG):
            temporary.unlink()
            return
        raise
    sync(temporary)
    temporary.rename(path)
    sync(Path(directory))


def load(directory: str) -> bytes | None:
    for path in sorted(Path(directory).glob("step-*.bin"), key=lambda p: int(p.stem[5:]), reverse=True):
        data = path.read_bytes()
        if sha256(data[32:]).digest() == data[:32]:
            return data[32:]
    return None
