"""Another run has left files of higher numbers here, and they are loaded (huggingface/transformers#37260)."""

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
 # ---- train
+if int(os.environ["TORCHELASTIC_RESTART_COUNT"]) == 0:  # another run, before this one
+    other = {name: x + 1 for name, x in model.state_dict().items()}
+    parts = {"model": other, "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
+    store.save(15, shared=parts, own={"rng": rng_state(), "sampler": {"epoch": 2, "position": 24}})
 while step < args.steps:
""",
    store_class=OwnFiles,  # type: ignore[arg-type]
)
