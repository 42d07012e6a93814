"""The project's own store: whatever a crash leaves, the job goes on from the newest save and ends as if undisturbed."""

from functools import cache
from pathlib import Path

from harness.checkpoint.store import CheckpointStore
from workloads.planted.jobs import training

ranks, steps = training.RANKS, training.SAVED


@cache
def open_store(directory: Path) -> CheckpointStore:
    """The store of a run that begins, or goes on."""
    store = CheckpointStore(directory)
    store.load()
    return store


def save(directory: Path, step: int) -> None:
    open_store(directory).save(step, training.state_at(step), own={})


def load(directory: Path) -> training.State | None:
    loaded = CheckpointStore(directory).load()
    return None if loaded is None else dict(loaded.shared)


if __name__ == "__main__":
    training.run(save, load)
