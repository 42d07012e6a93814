"""The reader takes the newest weights and the newest optimizer, whether or not they were saved together."""

import os
from pathlib import Path


def write(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    fd = os.open(path.parent, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def save(directory: str, step: int) -> None:
    write(Path(directory, f"weights-{step}.bin"), step.to_bytes(4, "little") * 4096)
    write(Path(directory, f"optimizer-{step}.bin"), step.to_bytes(4, "big") * 4096)


def newest(directory: str, part: str) -> bytes | None:
    steps = [int(path.stem.removeprefix(f"{part}-")) for path in Path(directory).glob(f"{part}-*.bin")]
    return Path(directory, f"{part}-{max(steps)}.bin").read_bytes() if steps else None


def load(directory: str) -> tuple[bytes, bytes] | None:
    weights, optimizer = newest(directory, "weights"), newest(directory, "optimizer")
    return None if weights is None or optimizer is None else (weights, optimizer)
