"""The data is synced, the marker that says so is not: after a power loss it is empty and the save does not count."""

import os
from pathlib import Path

steps = (1, 2)


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def save(directory: str, step: int) -> None:
    folder = Path(directory, f"step-{step}")
    folder.mkdir()
    weights = folder / "weights.bin"
    weights.write_bytes(step.to_bytes(4, "little") * 4096)
    sync(weights)
    sync(folder)
    (folder / "COMPLETE").write_text(f"step {step}\n")
    sync(folder)
    sync(Path(directory))


def is_complete(folder: Path) -> bool:
    marker = folder / "COMPLETE"
    return marker.exists() and marker.read_bytes() == f"step {folder.name[5:]}\n".encode()


def load(directory: str) -> bytes | None:
    complete = [folder for folder in Path(directory).glob("step-*") if is_complete(folder)]
    if not complete:
        return None
    return (max(complete, key=lambda folder: int(folder.name[5:])) / "weights.bin").read_bytes()
