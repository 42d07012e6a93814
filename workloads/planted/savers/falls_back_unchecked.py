"""The newest file is checked by its digest, the older one that stands in for it is not; nor is anything synced."""

import os
from hashlib import sha256
from pathlib import Path

steps = (1, 2)


def save(directory: str, step: int) -> None:
    weights = step.to_bytes(4, "little") * 4096
    path = Path(directory, f"step-{step}.bin")
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(sha256(weights).digest() + weights)
    temporary.rename(path)
    fd = os.open(directory, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def load(directory: str) -> bytes | None:
    saved = sorted(Path(directory).glob("step-*.bin"), key=lambda path: int(path.stem[5:]))
    if not saved:
        return None
    data = saved[-1].read_bytes()
    if sha256(data[32:]).digest() != data[:32] and len(saved) > 1:
        data = saved[-2].read_bytes()
    return data[32:]
