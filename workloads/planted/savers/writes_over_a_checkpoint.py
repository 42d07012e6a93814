"""Every save goes into the same directory, over the files of the one before: half-way it is a mixture of two steps."""

import os
from pathlib import Path


def write(path: Path, data: bytes) -> None:
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def save(directory: str, step: int) -> None:
    for shard in range(2):
        write(Path(directory, f"shard-{shard}.bin"), step.to_bytes(4, "little") * 4096)
    write(Path(directory, "SAVED"), b"yes")
    fd = os.open(directory, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def load(directory: str) -> list[bytes] | None:
    if not Path(directory, "SAVED").exists():
        return None
    return [Path(directory, f"shard-{shard}.bin").read_bytes() for shard in range(2)]
