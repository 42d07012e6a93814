"""Only the marker is synced, so it can be durable while the weights are still in memory."""

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
    (folder / "weights.bin").write_bytes(step.to_bytes(4, "little") * 4096)
    sync(folder)
    marker = folder / "DONE"
    marker.touch()
    sync(marker)
    sync(folder)
    sync(Path(directory))


def load(directory: str) -> bytes | None:
    done = [path.parent for path in Path(directory).glob("step-*/DONE")]
    if not done:
        return None
    return (max(done, key=lambda folder: int(folder.name[5:])) / "weights.bin").read_bytes()
