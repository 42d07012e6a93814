"""What the store reads, and what it tells the harness."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from checkpoints_fixture.ranks import all_of
from harness._tests.checkpoint_ranks import Witness, in_ranks, save_steps
from harness.checkpoint import points
from harness.checkpoint.format import FAILPOINTS, newest_valid
from harness.checkpoint.store import CheckpointStore
from harness.wire import Kind


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture
def listen(monkeypatch: pytest.MonkeyPatch) -> Callable[[Witness], Witness]:
    def install(witness: Witness) -> Witness:
        monkeypatch.setattr(points, "listener", witness)
        return witness

    return install


def test_choosing_among_100_checkpoints_reads_the_data_of_one(root: Path) -> None:
    big = {"model": torch.zeros(250_000)}  # 1 MB
    store = CheckpointStore(root, keep_last=100)
    for step in range(1, 101):
        store.save(step, big, {})
    size_bytes = (root / "step-100" / "model.pt").stat().st_size

    def read_bytes() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])  # rchar

    for choose, times in ((lambda: newest_valid(root), 1), (lambda: CheckpointStore(root).load(), 2)):
        before = read_bytes()
        chosen = choose()
        assert chosen is not None
        assert chosen.step == 100
        assert read_bytes() - before < times * size_bytes + 100_000


def test_the_harness_is_told_all(root: Path, listen: Callable[[Witness], Witness]) -> None:
    witness = listen(Witness())

    def act(store: CheckpointStore, rank: int) -> None:
        assert store.load() is None
        save_steps(store, 5, 10, 15)
        store.load()

    all_of(in_ranks(2, root, act, keep_last=2))
    for rank in (0, 1):
        told = [(kind, step) for r, kind, step, _ in witness.told if r == rank and kind is not Kind.INVENTORY]
        saves = [(kind, step) for step in (5, 10, 15) for kind in (Kind.SAVE_START, Kind.SAVE_END)]
        assert told == [(Kind.LOAD, 0), *saves, (Kind.LOAD, 15)]
    whys = [fields["why"] for rank, kind, _, fields in witness.told if kind is Kind.INVENTORY and rank == 0]
    assert whys == ["load", "saved", "saved", "saved", "retention", "retention", "load"]
    assert not any(kind is Kind.INVENTORY for rank, kind, _, _ in witness.told if rank == 1)
    ends = [
        (fields["path"], fields["manifest"])
        for _, kind, step, fields in witness.told
        if kind is Kind.SAVE_END and step == 15
    ]
    (loads,) = {
        (fields["path"], fields["manifest"])
        for _, kind, step, fields in witness.told
        if kind is Kind.LOAD and step == 15
    }
    assert ends == [loads, loads]


def test_every_failpoint_is_passed_by_its_writers_and_no_other_is(
    root: Path, listen: Callable[[Witness], Witness]
) -> None:
    witness = listen(Witness())

    def act(store: CheckpointStore, rank: int) -> None:
        save_steps(store, 5, 10, 15)
        store.load()

    all_of(in_ranks(2, root, act, keep_last=2))
    for name, failpoint in FAILPOINTS.items():
        for moment in ("before", "after"):
            ranks = {rank for rank, reached in witness.reached if reached == f"{name}:{moment}"}
            assert ranks == ({0, 1} if failpoint.writer == "every" else {0}), f"{name}:{moment}"
    around_all = {f"ckpt.{during}:{moment}" for during in ("save", "load") for moment in ("before", "after")}
    named = {f"{name}:{moment}" for name in FAILPOINTS for moment in ("before", "after")}
    assert {reached for _, reached in witness.reached} == named | around_all
