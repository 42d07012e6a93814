"""What a load reads to choose among many checkpoints."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from harness._bench.row import Row
from harness.checkpoint.store import CheckpointStore

NUM_CHECKPOINTS = 100
MODEL = {"weight": torch.zeros(1 << 18)}  # 1 MiB


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="chaos-bench-") as name:
        root = Path(name) / "checkpoints"
        store = CheckpointStore(root, keep_last=NUM_CHECKPOINTS)
        store.save(1, {"model": MODEL}, {})
        one_bytes = _bytes_of_a_load(root)
        for step in range(2, NUM_CHECKPOINTS + 1):
            store.save(step, {"model": MODEL}, {})
        all_bytes = _bytes_of_a_load(root)
    yield Row(
        what=f"bytes read to load among {NUM_CHECKPOINTS} checkpoints / from 1 alone",
        measured=all_bytes / one_bytes,
        budget=1.05,
        detail=f"{all_bytes / 1e6:.3g} MB / {one_bytes / 1e6:.3g} MB",
    )


def _bytes_of_a_load(root: Path) -> int:
    """What the process read by system calls meanwhile, from the page cache or not."""
    before = _bytes_read()
    loaded = CheckpointStore(root).load()
    if loaded is None:
        raise RuntimeError(f"{root} has nothing to load, so this measures nothing")
    return _bytes_read() - before


def _bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])  # rchar
