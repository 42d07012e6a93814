"""What the tests of the checkpoint store share: ranks as threads, and a listener that keeps and fails."""

from __future__ import annotations

import contextvars
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from checkpoints_fixture.ranks import ThreadExchange, run_ranks
from harness.checkpoint.format import inspect
from harness.checkpoint.store import CheckpointStore, Saved
from harness.wire import Kind

rank_here: contextvars.ContextVar[int] = contextvars.ContextVar("rank_here", default=0)


class Witness:
    """A listener that keeps what it is told, by rank, and raises ``error`` where ``fails`` says so."""

    def __init__(self, fails: Callable[[int, str], bool] = lambda rank, failpoint: False) -> None:
        self._fails = fails
        self.is_armed = True
        self.reached: list[tuple[int, str]] = []
        self.told: list[tuple[int, Kind, int, dict[str, Any]]] = []

    @property
    def rank(self) -> int:
        return rank_here.get()

    def reach(self, failpoint: str) -> None:
        self.reached.append((self.rank, failpoint))
        if self.is_armed and self._fails(self.rank, failpoint):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def part(self, name: str, size_bytes: int) -> int | None:
        return None

    def tell(self, kind: Kind, step: int, **fields: Any) -> None:
        self.told.append((self.rank, kind, step, fields))


def parts_of(step: int) -> dict[str, Any]:
    return {"model": {"weight": torch.full((10,), float(step))}}


def save_steps(store: CheckpointStore, *steps: int) -> list[Saved]:
    return [store.save(step, parts_of(step), {"position": step}) for step in steps]


def in_ranks(world_size: int, root: Path, act: Callable[[CheckpointStore, int], Any], **settings: Any) -> list[Any]:
    def one(exchange: ThreadExchange) -> Any:
        rank_here.set(exchange.rank)
        return act(CheckpointStore(root, exchange=exchange, **settings), exchange.rank)

    return run_ranks(world_size, one)


def steps_in(root: Path) -> list[int | None]:
    return [entry.step for entry in inspect(root) if entry.verdict == "complete"]
