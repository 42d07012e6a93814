"""The old checkpoint is removed file by file, its marker last: until then the rest counts as whole (OLMo-core#329)."""

import os
from pathlib import Path

NAMES = ("optimizer.bin", "weights.bin", "DONE")


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def is_complete(slot: Path) -> bool:
    return (slot / "DONE").exists()


def write(slot: Path, step: int) -> None:
    slot.mkdir()
    for name in NAMES:
        (slot / name).write_bytes(step.to_bytes(4, "little") * 2048)
        sync(slot / name)
        sync(slot)
    sync(slot.parent)


def remove(slot: Path) -> None:
    for name in NAMES:
        (slot / name).unlink()
        sync(slot)
    slot.rmdir()
    sync(slot.parent)


def save(directory: str, step: int) -> None:
    a, b = Path(directory, "a"), Path(directory, "b")
    new, old = (b, a) if is_complete(a) else (a, b)
    write(new, step)
    if is_complete(old):
        remove(old)


def load(directory: str) -> dict[str, bytes] | None:
    for slot in (Path(directory, "a"), Path(directory, "b")):
        if is_complete(slot):
            return {path.name: path.read_bytes() for path in sorted(slot.glob("*.bin"))}
    return None
