"""A sound directory: two ranks saved after updates 5, 10 and 15, the way a training script does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from checkpoints_fixture.ranks import ThreadExchange, all_of, run_ranks
from harness.checkpoint.store import CheckpointStore, Saved

WORLD_SIZE = 2
STEPS = (5, 10, 15)
CONFIG = {"learning_rate": 0.1}


def shared_parts(step: int) -> dict[str, Any]:
    """What the ranks have alike after update ``step``: values that say which step they are of."""
    return {
        "model": {"weight": torch.full((64, 32), float(step)), "bias": torch.arange(32) + step},
        "optimizer": {"state": {0: {"exp_avg": torch.full((64, 32), step / 2)}}, "param_groups": [{"lr": 0.1}]},
        "progress": {"epoch": step // 10, "best_accuracy": step / 100},
    }


def own_parts(step: int, rank: int) -> dict[str, Any]:
    return {"sampler": {"epoch": step // 10, "position": step}, "rank": rank}


def make_sound(root: Path, steps: tuple[int, ...] = STEPS, world_size: int = WORLD_SIZE) -> None:
    """Make ``root`` with one checkpoint a step."""

    def train(exchange: ThreadExchange) -> list[Saved]:
        store = CheckpointStore(root, keep_last=max(3, len(steps)), config=CONFIG, exchange=exchange)
        if store.load() is not None:
            raise FileExistsError(f"{root} holds checkpoints already; give a directory that is new")
        return [store.save(step, shared_parts(step), own_parts(step, exchange.rank)) for step in steps]

    all_of(run_ranks(world_size, train))
