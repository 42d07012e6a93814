"""Real ranks: what is true of an evaluation is asked right after it, on rank 0, and leaves no trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness._tests.launched import Run, shown
from harness.checks import GUARANTEES
from harness.checks.base import Verdict
from harness.history import History
from harness.scenario import Metric
from harness.wire import Kind

ACCURACY = """
import torch
def metric(model, dataset):
    x, y = dataset.tensors
    return (model(x).argmax(1) == y).double().mean()
"""
# Ten samples whose features say what a model that changes nothing predicts of them; every label is 0.
EVALUATE = """
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
dist.init_process_group("gloo")
wrong = {wrong}
x = torch.nn.functional.one_hot(torch.tensor([int(i in wrong) for i in range(10)]), 2).float()
data = TensorDataset(x, torch.zeros(10, dtype=torch.long))
model = torch.nn.Identity()
right = counted = torch.zeros((), dtype=torch.double)
with torch.no_grad():
    for x, y in DataLoader(data, 2, sampler={sampler}):
        right, counted = right + (model.eval()(x).argmax(1) == y).sum(), counted + len(y)
{report}
if rank == 0:
    print(f"accuracy {{accuracy:.4f}}")
dist.destroy_process_group()
"""
SUMS = "dist.all_reduce(right), dist.all_reduce(counted)\naccuracy = float(right / counted)"
MEANS = "accuracy = right / counted / world_size\ndist.all_reduce(accuracy)"
IN_STRIDE = "range(rank, 10, world_size)"
CONTIGUOUS = "range(3 * rank, min(3 * rank + 3, 10))"  # 3, 3, 3 and 1 of them
PADDED = "DistributedSampler(data, shuffle=False)"
ALL_BUT_9 = "range(9)"


@pytest.fixture
def reference(tmp_path: Path) -> Callable[[str], Metric]:
    def write(text: str) -> Metric:
        path = tmp_path / "reference.py"
        path.write_text(text)
        return Metric(reported="accuracy ([0-9.]+)", reference=str(path))

    return write


def judged(history: History) -> Verdict:
    return GUARANTEES["MetricRight"].check(history, None)


CASES = {
    "two of ten wrong, sums": ("range(2)", IN_STRIDE, SUMS, 0.8, "0.8000"),
    "two of ten wrong, with the padding counted": ("range(2)", PADDED, SUMS, 0.8, "0.6667"),
    "two of ten right, with the padding counted": ("range(2, 10)", PADDED, SUMS, 0.2, "0.3333"),
    "only the last right, sums": (ALL_BUT_9, CONTIGUOUS, SUMS, 0.1, "0.1000"),
    "only the last right, the mean of the ranks": (ALL_BUT_9, CONTIGUOUS, MEANS, 0.1, "0.2500"),
}


@pytest.mark.parametrize(("wrong", "sampler", "report", "true", "said"), CASES.values(), ids=CASES)
def test_the_classic_mistakes_on_ten_samples_and_four_ranks(
    run: Run, reference: Callable[[str], Metric], wrong: str, sampler: str, report: str, true: float, said: str
) -> None:
    text = EVALUATE.format(wrong=wrong, sampler=sampler, report=report)
    history = run(text, ranks=4, metric=reference(ACCURACY))
    (asked,) = history.of(Kind.METRIC)
    assert (asked.rank, asked.step, asked.phase, asked.data["value"]) == (0, 0, "eval", pytest.approx(true))
    assert history.reported == {0: (said,)}
    found = judged(history)
    assert found.outcome == ("valid" if float(said) == true else "invalid"), found
    assert found.outcome == "valid" or found.seen == {"reported": said, "reference": pytest.approx(true)}


# It trains and evaluates in turns: everything that the reference might disturb shows in the digests.
TRAIN = """
from torch.utils.data import DataLoader, TensorDataset
dist.init_process_group("gloo")
import random, numpy
random.seed(0), numpy.random.seed(0), torch.manual_seed(0)
data = TensorDataset(torch.randn(10, 4), torch.zeros(10, dtype=torch.long))
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2))
ddp = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in DataLoader(data, 5, shuffle=True):
        torch.nn.functional.cross_entropy(ddp(x), y).backward()
        optimizer.step()
    net.eval()
    net[2].train()
    with torch.no_grad():
        for x, _ in DataLoader(data, 5, sampler=range(rank, 10, world_size)):
            ddp(x)
    show(modes=[module.training for module in net.modules()])
    net.train()
del ddp
dist.destroy_process_group()
"""
DISTURBING = """
import random
import numpy
import torch
from torch.utils.data import DataLoader
def metric(model, dataset):
    assert not any(module.training for module in model.modules())
    assert not torch.is_grad_enabled()
    assert isinstance(model, torch.nn.Sequential)
    random.random(), numpy.random.rand()
    for x, _ in DataLoader(dataset, 3, shuffle=True):
        model(x)
    return torch.rand(()) + len(dataset)
"""


def test_it_leaves_no_trace(run: Run, tmp_path: Path, reference: Callable[[str], Metric]) -> None:
    plain, asked = run(TRAIN), run(TRAIN, metric=reference(DISTURBING))
    values = [event.data["value"] for event in asked.of(Kind.METRIC)]
    assert [(e.rank, e.step) for e in asked.of(Kind.METRIC)] == [(0, 2), (0, 4)]
    assert all(10 <= value < 11 for value in values)
    assert shown(tmp_path, asked, 0)["modes"] == shown(tmp_path, plain, 0)["modes"]

    def record(history: History, rank: int) -> list[tuple[object, ...]]:
        kinds = (Kind.PHASE, Kind.LOADER, Kind.BATCH, Kind.UPDATE, Kind.COLLECTIVE, Kind.LOADER_END)
        return [
            (e.kind, e.step, e.phase, {k: v for k, v in e.data.items() if k != "site"})
            for e in history.of(kinds, rank=rank)
        ]

    for rank in (0, 1):
        assert record(asked, rank) == record(plain, rank)


PROBLEMS = {
    "it raises": ("def metric(model, dataset):\n    raise KeyError('no')", "the reference raised KeyError: 'no'"),
    "it returns no number": (
        "def metric(model, dataset):\n    return 'x'",
        "the reference raised ValueError: could not",
    ),
    "it communicates": (
        "import torch, torch.distributed as dist\ndef metric(model, dataset):\n    dist.all_reduce(torch.ones(1))",
        "this code runs on one rank alone and must not communicate",
    ),
    "it has no such function": ("def accuracy(model, dataset):\n    return 1.0", "has no attribute 'metric'"),
    "it cannot be imported": ("import no_such_package", "cannot be used: ModuleNotFoundError"),
}


@pytest.mark.parametrize(("text", "said"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_reference_that_fails_is_unknown_and_does_the_job_no_harm(
    run: Run, reference: Callable[[str], Metric], text: str, said: str
) -> None:
    script = EVALUATE.format(wrong="range(2)", sampler=IN_STRIDE, report=SUMS)
    history = run(script, metric=reference(text))
    assert history.outcome.exit_code == 0
    found = judged(history)
    assert found.outcome == "unknown"
    assert said in found.reason


def test_a_data_set_that_it_is_not_about_has_no_number(run: Run, reference: Callable[[str], Metric]) -> None:
    history = run(TRAIN, metric=reference("def metric(model, dataset):\n    return None"))
    assert history.outcome.exit_code == 0
    assert history.of(Kind.METRIC) == []
