"""Each rank saves its own file at the step where it saw the signal, and loads it again (NVIDIA-NeMo/Automodel#3007)."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from workloads.planted import run

RANK, IS_RESTART = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"] != "0"


class OwnFiles:
    def __init__(self, root: str, **_: Any) -> None:
        self.root = Path(root)

    def save(self, step: int, shared: Any, own: Any) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        torch.save({"step": step, "shared": shared, "own": own}, self.root / f"{step}-{RANK}.pt")

    def load(self) -> SimpleNamespace | None:
        numbers = [int(file.name.split("-")[0]) for file in self.root.glob(f"*-{RANK}.pt")]
        if not (IS_RESTART and numbers):
            return None
        return SimpleNamespace(**torch.load(self.root / f"{max(numbers)}-{RANK}.pt"))


run(
    """
-        if step % args.save_every == 0 or step == args.steps:
+        if step == 7 + rank or step == args.steps:
""",
    store_class=OwnFiles,  # type: ignore[arg-type]
)
