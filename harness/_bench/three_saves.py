"""Saves three times by torch.save and os.replace, or goes on from the last: one script for two tools (see rival)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch


def save(directory: str, step: int) -> None:
    temporary = Path(directory, "last.pt.tmp")
    torch.save({"step": step, "weights": torch.full((64, 64), float(step))}, temporary)
    temporary.replace(Path(directory, "last.pt"))


def load(directory: str) -> Any:
    path = Path(directory, "last.pt")
    return torch.load(path) if path.exists() else None


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(exist_ok=True)
    state = load(str(out)) or {"step": 0}
    print(f"resumed from step {state['step']}")
    for step in range(state["step"] + 1, 4):
        save(str(out), step)
    Path(out, "final").write_text(str(load(str(out))["step"]))
