"""Batches that a fault changes, repeats, loses and delays: what the script is given, and what is on record."""

from __future__ import annotations

from collections import UserDict, namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness._tests.launched import Run, shown
from harness.faults import At
from harness.faults.batch import BatchFault
from harness.faults.corrupt_sample import CorruptSample
from harness.faults.lose_batch import LoseBatch
from harness.faults.nan_batch import NanBatch
from harness.faults.repeat_batch import RepeatBatch
from harness.faults.stalled_read import StalledRead
from harness.history import History
from harness.rank.batches import rebuilt
from harness.wire import Kind

Pair = namedtuple("Pair", "x y")


# -- any kind of batch ---------------------------------------------------------------------------------------------

X = torch.arange(3.0)
SHAPES: dict[str, tuple[Any, Any]] = {
    "a tensor": (X, X + 1),
    "a tuple": ((X, 1), (X + 1, 1)),
    "a list of lists": ([[X], "a"], [[X + 1], "a"]),
    "a dict": ({"x": X, "n": None}, {"x": X + 1, "n": None}),
    "a named tuple": (Pair(X, 2), Pair(X + 1, 2)),
    "a mapping of another type": (UserDict(x=X), UserDict(x=X + 1)),
    "an object with attributes": (SimpleNamespace(x=X, y=(X,)), SimpleNamespace(x=X + 1, y=(X + 1,))),
    "nothing with a tensor": (("a", 1, 2.0, None), ("a", 1, 2.0, None)),
}


@pytest.mark.parametrize(("given", "edited"), SHAPES.values(), ids=SHAPES)
def test_each_tensor_of_a_batch_is_edited_in_a_copy(given: Any, edited: Any) -> None:
    before = repr(given)
    copied = rebuilt(given, lambda tensor: tensor + 1)
    assert type(copied) is type(given)
    assert repr(copied) == repr(edited)
    assert repr(given) == before


class Parent:
    """Refers to itself, and must not be copied."""

    def __init__(self, x: torch.Tensor | None) -> None:
        self.x, self.me = x, self

    def __copy__(self) -> Parent:
        assert self.x is not None, "copied, and nothing in it changes"
        return Parent(self.x)


def test_what_refers_to_itself_or_holds_no_tensor_is_no_trouble() -> None:
    with_tensor, without = Parent(X), Parent(None)
    first, second = rebuilt((with_tensor, without), lambda tensor: tensor + 1)
    assert first.x.tolist() == (X + 1).tolist()
    assert with_tensor.x is X
    assert second is without


def test_a_batch_is_repeated_as_it_was_handed_out(run: Run, tmp_path: Path) -> None:
    text = """
from torch.utils.data import DataLoader
data = [{"x": float(n)} for n in range(4)]
seen = []
for batch in DataLoader(data, 2):
    seen.append(batch.pop("x").tolist())
show(seen=seen)
"""
    history = run(text, RepeatBatch(rank=1, at=At(epoch=0, hit=2)))
    assert shown(tmp_path, history, 1)["seen"] == [[0.0, 1.0], [0.0, 1.0]]


class FakeReading:
    """Applies what a fault makes of a tensor."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def changed(self, edit: Any) -> Any:
        return rebuilt(self.batch, edit)


def edited(fault: BatchFault, tensor: torch.Tensor) -> torch.Tensor:
    found = fault.read(FakeReading(tensor.clone()))  # type: ignore[arg-type]
    assert isinstance(found, torch.Tensor)
    return found


def test_of_a_batch_of_nan_integers_stay() -> None:
    assert edited(NanBatch(rank=0), torch.zeros(2, 3)).isnan().all()
    assert edited(NanBatch(rank=0), torch.zeros(2, dtype=torch.float16)).isnan().all()
    assert torch.equal(edited(NanBatch(rank=0), torch.tensor([1, 2])), torch.tensor([1, 2]))


CORRUPTED: dict[str, tuple[dict[str, Any], list[Any], list[Any]]] = {
    "floats are multiplied, zeros too": ({"factor": 10.0}, [[0.0, 1.0], [2.0, 3.0]], [[10.0, 20.0], [2.0, 3.0]]),
    "another sample": ({"sample": 1, "factor": 2.0}, [[0.0], [1.0]], [[0.0], [4.0]]),
    "integers stay among those of their tensor": ({"sample": 1}, [[3, -100], [7, 3]], [[3, -100], [-100, 7]]),
    "labels": ({}, [0, 1, 1], [1, 1, 1]),
    "integers of one value have no other": ({}, [4, 4], [4, 4]),
    "masks stay": ({}, [True, False], [True, False]),
    "no such sample": ({"sample": 2}, [1.0, 2.0], [1.0, 2.0]),
    "an empty batch": ({}, [], []),
}


@pytest.mark.parametrize(("fields", "given", "expected"), CORRUPTED.values(), ids=CORRUPTED)
def test_a_corrupt_sample(fields: dict[str, Any], given: list[Any], expected: list[Any]) -> None:
    assert edited(CorruptSample(rank=0, **fields), torch.tensor(given)).tolist() == expected


def test_a_tensor_without_samples_stays() -> None:
    assert edited(CorruptSample(rank=0), torch.tensor(2.0)).item() == 2.0


# -- real loaders --------------------------------------------------------------------------------------------------

READ = """
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("gloo")
data = [float(n) for n in range(100, 112)]
sampler = DistributedSampler(data, shuffle=False)
loader = DataLoader(data, 2, sampler=sampler{options})
got = []
for epoch in range(2):
    sampler.set_epoch(epoch)
    got += [[batch.tolist() for batch in loader]]
show(got=[[[str(x) for x in batch] for batch in epoch] for epoch in got])
dist.barrier()
dist.destroy_process_group()
"""
WORKERS = ["", ", num_workers=2", ", num_workers=2, persistent_workers=True"]
PASS = [["101.0", "103.0"], ["105.0", "107.0"], ["109.0", "111.0"]]


def read(run: Run, tmp_path: Path, fault: BatchFault, options: str = "") -> tuple[History, list[list[list[str]]]]:
    """The history, and what rank 1 was given in each epoch."""
    history = run(READ.format(options=options), fault)
    assert history.outcome.exit_code == 0
    assert shown(tmp_path, history, 0)["got"][0][0] == ["100.0", "102.0"], "rank 0 is left alone"
    return history, shown(tmp_path, history, 1)["got"]


def ids(history: History) -> list[list[int]]:
    return [e.data["ids"] for e in history.of(Kind.BATCH, rank=1)]


def proof(history: History) -> str | None:
    (fired,) = history.of(Kind.FAULT)
    after = [e for e in history.of(rank=1) if e.seq > fired.seq]
    return history.plan.faults[0].missing_effect(fired, after)


@pytest.mark.parametrize("options", WORKERS)
def test_a_batch_of_nan(run: Run, tmp_path: Path, options: str) -> None:
    history, got = read(run, tmp_path, NanBatch(rank=1, at=At(epoch=1, hit=2)), options)
    assert got == [PASS, [PASS[0], ["nan", "nan"], PASS[2]]]
    assert proof(history) is None


@pytest.mark.parametrize("options", WORKERS)
def test_a_batch_again_and_what_is_lost_for_it(run: Run, tmp_path: Path, options: str) -> None:
    history, got = read(run, tmp_path, RepeatBatch(rank=1, at=At(epoch=1, hit=2)), options)
    assert got == [PASS, [PASS[0], PASS[0], PASS[2]]]
    assert ids(history)[3:] == [[1, 3], [1, 3], [9, 11]]
    (effect,) = history.of(Kind.EFFECT)
    assert (effect.data["lost"], effect.data["repeated"]) == ([5, 7], [1, 3])
    assert proof(history) is None


def test_the_first_batch_of_a_pass_has_none_before_it(run: Run, tmp_path: Path) -> None:
    history, got = read(run, tmp_path, RepeatBatch(rank=1, at=At(epoch=1)), WORKERS[2])
    assert got == [PASS, PASS]
    assert "no batch before" in (proof(history) or "")


@pytest.mark.parametrize("options", WORKERS)
def test_a_batch_lost(run: Run, tmp_path: Path, options: str) -> None:
    history, got = read(run, tmp_path, LoseBatch(rank=1, at=At(epoch=0, hit=2)), options)
    assert got == [[PASS[0], PASS[2]], PASS]
    assert ids(history)[:2] == [[1, 3], [9, 11]]
    assert [e.data["batches"] for e in history.of(Kind.LOADER_END, rank=1)] == [2, 3]
    assert proof(history) is None


def test_the_last_batch_lost_ends_the_pass(run: Run, tmp_path: Path) -> None:
    history, got = read(run, tmp_path, LoseBatch(rank=1, at=At(epoch=0, hit=3)))
    assert got == [PASS[:2], PASS]
    assert proof(history) is None


def test_a_stall_is_as_long_as_it_says(run: Run, tmp_path: Path) -> None:
    history, got = read(run, tmp_path, StalledRead(rank=1, at=At(epoch=0, hit=2), duration_s=0.2))
    assert got == [PASS, PASS]
    (fired,) = history.of(Kind.FAULT)
    then = next(e for e in history.of(Kind.BATCH, rank=1) if e.seq > fired.seq)
    assert then.t_ns - fired.t_ns >= 0.2e9
    assert proof(history) is None


def test_the_end_of_a_pass_is_no_batch(run: Run, tmp_path: Path) -> None:
    """Nothing stands at the end of an epoch: the fault waits for the first batch of the next."""
    history, got = read(run, tmp_path, NanBatch(rank=1, at=At(step=1, hit=4)))
    assert got == [PASS, [["nan", "nan"], *PASS[1:]]]
    assert proof(history) is None


EVALUATED = """
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train, held_out = (TensorDataset(torch.arange(4.0)[:, None]) for _ in range(2))
seen = []
for _ in range(3):
    for (x,) in DataLoader(train, 4):  # a new loader each time
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        seen.append(bool(x.isnan().any()))
    with torch.no_grad():
        for (x,) in DataLoader(held_out, 2):
            model.eval()(x)
            seen.append(bool(x.isnan().any()))
    model.train()
show(seen=seen)
"""


def test_a_batch_of_an_evaluation_does_not_count(run: Run, tmp_path: Path) -> None:
    """It is read in the step that comes next."""
    history = run(EVALUATED, NanBatch(rank=1, at=At(step=2)))
    assert shown(tmp_path, history, 1)["seen"] == [False] * 3 + [True] + [False] * 5
    (fired,) = history.of(Kind.FAULT)
    assert fired.data["effect"] == "on batch 0 of epoch 1 of loader 2"
    assert proof(history) is None


def test_without_such_a_fault_nothing_stands_in_between(run: Run, tmp_path: Path) -> None:
    text = """
from torch.utils.data.dataloader import _BaseDataLoaderIter
cells = [cell.cell_contents for cell in _BaseDataLoaderIter.__next__.__closure__]
show(modules=[getattr(cell, "__module__", "") for cell in cells])
"""
    quiet, bad = (
        shown(tmp_path, run(text, *faults), 1)["modules"] for faults in ((), (NanBatch(rank=1, at=At(step=1)),))
    )
    assert "harness.rank.bad_batches" not in quiet
    assert "harness.rank.bad_batches" in bad
