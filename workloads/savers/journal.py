"""A journal that is only appended to: each record has its length and digest, and a torn one does not count."""

import os
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

HEADER_BYTES = 8 + 32  # length, sha256


def newest_record(file: BinaryIO) -> tuple[bytes | None, int]:
    """The last whole record, and where it ends."""
    newest, end_bytes = None, 0
    while len(header := file.read(HEADER_BYTES)) == HEADER_BYTES:
        data = file.read(int.from_bytes(header[:8], "little"))
        if sha256(data).digest() != header[8:]:
            break
        newest, end_bytes = data, file.tell()
    return newest, end_bytes


def save(directory: str, step: int) -> None:
    weights = step.to_bytes(4, "little") * 4096
    path = Path(directory, "journal")
    path.touch()
    with path.open("r+b", buffering=0) as file:
        _, end_bytes = newest_record(file)
        file.truncate(end_bytes)
        file.seek(end_bytes)
        file.write(len(weights).to_bytes(8, "little") + sha256(weights).digest() + weights)
        os.fsync(file.fileno())
    fd = os.open(directory, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def load(directory: str) -> bytes | None:
    path = Path(directory, "journal")
    if not path.exists():
        return None
    with path.open("rb") as file:
        return newest_record(file)[0]
