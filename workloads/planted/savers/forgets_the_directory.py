"""The file is synced and renamed; that the directory has its new name is not made durable."""

import os
from hashlib import sha256
from pathlib import Path


def save(directory: str, step: int) -> None:
    weights = step.to_bytes(4, "little") * 4096
    path = Path(directory, f"step-{step}.bin")
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(sha256(weights).digest() + weights)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)


def load(directory: str) -> bytes | None:
    for path in sorted(Path(directory).glob("step-*.bin"), key=lambda p: int(p.stem[5:]), reverse=True):
        data = path.read_bytes()
        if sha256(data[32:]).digest() == data[:32]:
            return data[32:]
    return None
