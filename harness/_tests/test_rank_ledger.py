"""Real ranks: which samples an update is made of, where the script goes about it in an unusual way."""

from __future__ import annotations

import pytest

from harness._tests.launched import Run
from harness.checks import GUARANTEES
from harness.history import History
from harness.wire import Kind

MODEL = """
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(16, 4))
held_out = TensorDataset(torch.randn(8, 4))
layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
model = nn.parallel.DistributedDataParallel(layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, 2, sampler=DistributedSampler(data, shuffle=False))
"""
END = "\ndel model\ndist.destroy_process_group()\n"


def ids(history: History, rank: int = 0) -> list[list[int]]:
    return [e.data["ids"] for e in history.of(Kind.UPDATE, rank=rank, restart=0)]


def phases(history: History) -> list[tuple[int, str]]:
    return [(e.step, e.phase) for e in history.of(Kind.PHASE, rank=0, restart=0)]


def outcome(name: str, history: History) -> str:
    return GUARANTEES[name].check(history, None).outcome


IN_EVALUATION_MODE = """
model.eval()  # its statistics stay as they are
for (x,) in loader:
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
EVALUATION
"""
EVALUATION = """
for (x,) in DataLoader(held_out, 2, sampler=DistributedSampler(held_out, shuffle=False)):
    model(x)
"""


@pytest.mark.parametrize("evaluation", ["", EVALUATION], ids=["alone", "and an evaluation that computes gradients"])
def test_a_model_that_is_trained_in_evaluation_mode(run: Run, evaluation: str) -> None:
    history = run(MODEL + IN_EVALUATION_MODE.replace("EVALUATION", evaluation) + END)
    assert ids(history) == [[0, 2], [4, 6], [8, 10], [12, 14]]
    assert (1, "forward") in phases(history)
    assert (4, "forward") in phases(history)
    assert outcome("SamplesOnce", history) == "valid"
    assert outcome("MetricRight", history) == ("valid" if evaluation else "not-applicable")


WINDOW = """
for number, (x,) in enumerate(loader):
    loss = model(x).sum()
    if number == 1:
        ZERO
    loss.backward()
    if number == 3:
        optimizer.step()
        optimizer.zero_grad()
loader = DataLoader(data, 2, sampler=DistributedSampler(data, shuffle=False))
for number, (x,) in enumerate(loader):
    loss = model(x).sum()
    if number == 2:
        ZERO
    loss.backward()
    if number == 3:
        optimizer.step()
"""


@pytest.mark.parametrize(
    "zero", ["optimizer.zero_grad()", "optimizer.zero_grad(set_to_none=False)", "model.zero_grad()"]
)
def test_what_was_thrown_away_with_its_gradients_is_no_part_of_the_update(run: Run, zero: str) -> None:
    """Before the first update nothing tells yet which gradients count."""
    history = run(MODEL + WINDOW.replace("ZERO", zero) + END)
    assert ids(history)[1] == [8, 10, 12, 14]


@pytest.mark.parametrize("zero", ["pass", "optimizer.zero_grad()  # in front of the first backward pass of the window"])
def test_accumulated_batches_all_count(run: Run, zero: str) -> None:
    text = WINDOW.replace("number == 1", "number == 9").replace("number == 2", "number == 0").replace("ZERO", zero)
    assert ids(run(MODEL + text + END)) == [[0, 2, 4, 6, 8, 10, 12, 14]] * 2


TWO_OPTIMIZERS = """
critic = nn.Linear(1, 1)
second = torch.optim.SGD(critic.parameters(), lr=0.1)
for (x,) in loader:
    second.zero_grad()
    critic(model(x)).sum().backward()
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
    second.step()
"""


def test_what_one_of_two_optimizers_throws_away_the_other_one_may_use(run: Run) -> None:
    assert ids(run(MODEL + TWO_OPTIMIZERS + END)) == [[0, 2], [4, 6], [8, 10], [12, 14]]


OF_ONE_RANK = """
if rank == 0:
    for _ in DataLoader(held_out, 1):  # to look at a few
        pass
loader = DataLoader(data, 2, sampler=DistributedSampler(data, shuffle=False))
for (x,) in loader:
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""


def test_a_loader_that_one_rank_alone_makes_does_not_shift_the_others(run: Run) -> None:
    text = MODEL.replace("loader = DataLoader(data, 2, sampler=DistributedSampler(data, shuffle=False))\n", "")
    history = run(text + OF_ONE_RANK + END)
    assert [ids(history, rank)[0] for rank in (0, 1)] == [[0, 2], [1, 3]]
    for name in ("LoadersAgree", "SamplesOnce"):
        assert outcome(name, history) == "valid"
