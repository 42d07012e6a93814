"""This project's own store: whatever the crash, what is loaded is whole, and the newest that was acknowledged."""

import os
from functools import cache
from typing import Any

import torch

from harness.checkpoint.store import CheckpointStore


@cache
def open_store(directory: str) -> CheckpointStore:
    """The store of a run that begins, or goes on."""
    store = CheckpointStore(directory)
    store.load()
    return store


def save(directory: str, step: int) -> None:
    shared = {"model": {"weight": torch.full((64, 64), float(step))}}
    own = {"position": 8 * step + int(os.environ.get("RANK", "0"))}
    open_store(directory).save(step, shared, own)


def load(directory: str) -> Any:
    loaded = CheckpointStore(directory).load()
    return None if loaded is None else (loaded.step, loaded.shared, loaded.own)
