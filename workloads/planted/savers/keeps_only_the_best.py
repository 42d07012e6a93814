"""With a limit of one the best checkpoint stays and the one just saved goes (transformers#25129)."""

import os
from pathlib import Path

LOSSES = {1: 0.5, 2: 0.3, 3: 0.4}


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def step_of(path: Path) -> int:
    return int(path.stem[5:])


def save(directory: str, step: int) -> None:
    root = Path(directory)
    temporary = root / "step.tmp"
    temporary.write_bytes(step.to_bytes(4, "little") * 4096)
    sync(temporary)
    temporary.rename(root / f"step-{step}.bin")
    sync(root)
    for worse in sorted(root.glob("step-*.bin"), key=lambda path: LOSSES[step_of(path)])[1:]:
        worse.unlink()
    sync(root)


def load(directory: str) -> bytes | None:
    saved = sorted(Path(directory).glob("step-*.bin"), key=step_of)
    return saved[-1].read_bytes() if saved else None


def expected(step: int) -> bytes:
    return step.to_bytes(4, "little") * 4096
