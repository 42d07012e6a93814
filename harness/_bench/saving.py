"""What a save costs beside a plain write and fsync of the same bytes."""

from __future__ import annotations

import functools
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from harness._bench.row import Row
from harness.checkpoint.store import CheckpointStore

NUM_TENSORS, TENSOR_BYTES = 64, 4 << 20  # 256 MiB together
ROUNDS = 9


def measure() -> Iterator[Row]:
    torch.set_num_threads(1)
    model = {f"layer{i}": torch.randn(TENSOR_BYTES // 4) for i in range(NUM_TENSORS)}
    # Beside the sources and not in the directory for temporary files: that one may be memory, which needs no fsync.
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd()) as name:
        root = Path(name)
        saved = CheckpointStore(root / "first").save(0, {"model": model}, {})
        data = (saved.path / "model.pt").read_bytes()
        plain_s, store_s = [], []
        for number in range(ROUNDS):  # by turns, so that both meet the same neighbours
            plain = functools.partial(_write_plainly, root / f"plain-{number}", data)
            store = CheckpointStore(root / f"store-{number}")
            plain_s.append(_duration_s(plain))
            store_s.append(_duration_s(functools.partial(store.save, 0, {"model": model}, {})))
            shutil.rmtree(store.root)
            (root / f"plain-{number}").unlink()
    yield Row(
        what="saving 256 MiB with the store / plain write and fsync",
        measured=statistics.median(store / plain for store, plain in zip(store_s, plain_s, strict=True)),
        budget=1.3,
        detail=f"best {min(store_s):.3g} s / {min(plain_s):.3g} s; median ratio of {ROUNDS} pairs",
    )


def _write_plainly(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def _duration_s(call: Callable[[], object]) -> float:
    os.sync()  # what others have written before is not waited for in here
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
