"""Which checkpoints stay, which go, and what a roll back sets aside."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from harness._tests.checkpoint_ranks import save_steps, steps_in
from harness.checkpoint.format import inspect
from harness.checkpoint.store import CheckpointStore
from harness.errors import LoadRefused


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.mark.parametrize(
    ("keep_last", "steps", "left"),
    [
        (2, [5, 10, 15], [15, 10]),
        (3, [1, 2, 3, 4, 5], [5, 4, 3]),
        (2, [9900, 10000], [10000, 9900]),
        (4, [1, 2], [2, 1]),
    ],
)
def test_the_last_ones_by_number_stay(keep_last: int, steps: list[int], left: list[int], root: Path) -> None:
    save_steps(CheckpointStore(root, keep_last=keep_last), *steps)
    assert [entry.name for entry in inspect(root)] == [f"step-{step}" for step in left]


def test_the_last_ones_by_number_stay_whatever_their_times(root: Path) -> None:
    store = CheckpointStore(root, keep_last=2)
    for number, step in enumerate((5, 10, 15, 20)):
        save_steps(store, step)
        os.utime(root / f"step-{step}", (1e9 - number, 1e9 - number))  # the newer, the older it looks
    assert steps_in(root) == [20, 15]


def test_only_verified_ones_count_as_kept(root: Path) -> None:
    save_steps(CheckpointStore(root), 5, 10, 15)
    store = CheckpointStore(root, keep_last=3)
    store.load()
    save_steps(store, 20)
    assert steps_in(root) == [20, 15, 10, 5], (
        "nothing is known of 10 and 5 in this process, so 15 and 20 are all it has"
    )
    save_steps(store, 25)
    assert steps_in(root) == [25, 20, 15]


def test_what_this_store_did_not_make_is_never_deleted(root: Path) -> None:
    store = CheckpointStore(root, keep_last=2)
    save_steps(store, 10)
    foreign = [
        "step-1.backup",
        ".step-7.tmp-0-00000000000000aa",
        ".trash-0-00000000000000aa-step-3",
        ".corrupt-x",
        "notes",
    ]
    for name in foreign:
        (root / name).mkdir()
        (root / name / "model.pt").write_bytes(b"precious")
    other = root.parent / "other"
    save_steps(CheckpointStore(other), 5)
    shutil.copytree(other / "step-5", root / "step-5")  # sound, but of another job
    save_steps(store, 20, 30, 40)
    assert steps_in(root) == [40, 30, 5]
    assert all((root / name / "model.pt").read_bytes() == b"precious" for name in foreign)


def test_a_foreign_file_in_an_old_checkpoint_outlives_it(root: Path) -> None:
    store = CheckpointStore(root, keep_last=2)
    save_steps(store, 5)
    (root / ".trash").mkdir()
    save_steps(store, 10)
    (root / "step-5" / "notes.txt").write_text("precious")
    save_steps(store, 15)
    assert (root / "step-5" / "notes.txt").read_text() == "precious"


@pytest.mark.parametrize("harm", ["the marker is gone", "all of it is gone"])
def test_nothing_is_deleted_while_one_that_should_stay_is_damaged(harm: str, root: Path) -> None:
    store = CheckpointStore(root, keep_last=2)
    save_steps(store, 5, 10)
    if harm == "the marker is gone":
        (root / "step-10" / "COMPLETE").unlink()
    else:
        shutil.rmtree(root / "step-10")
    save_steps(store, 15)
    assert steps_in(root) == [15, 5]
    save_steps(store, 20)
    assert steps_in(root)[:2] == [20, 15]


def test_newer_checkpoints_are_set_aside_by_a_roll_back(root: Path) -> None:
    save_steps(CheckpointStore(root), 5, 10, 15)
    store = CheckpointStore(root)
    loaded = store.load(at_most=12)
    assert loaded is not None
    assert loaded.step == 10
    assert steps_in(root) == [10, 5]
    assert [e.name.rpartition("-step-")[2] for e in inspect(root) if e.verdict == "abandoned"] == ["15"]
    assert (root / "latest").readlink() == Path("step-10")
    save_steps(store, 15)
    assert steps_in(root) == [15, 10, 5]


def test_a_roll_back_to_before_everything_is_refused(root: Path) -> None:
    save_steps(CheckpointStore(root), 5)
    with pytest.raises(LoadRefused, match="step-5 is newer than asked for"):
        CheckpointStore(root).load(at_most=3)
    assert steps_in(root) == [5]
