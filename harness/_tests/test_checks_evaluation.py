"""Real ranks: which passes over a loader are evaluations, in scripts as people write them."""

from __future__ import annotations

from typing import Any

import pytest

from harness._tests.launched import Run
from harness.checks import GUARANTEES
from harness.checks.evaluation import evaluations

# Two ranks; ten samples are held out. ``train(batches)`` makes an update of each batch.
SCRIPT = """
import copy, itertools
from torch.utils.data import DataLoader, DistributedSampler, Subset, SubsetRandomSampler, TensorDataset, random_split
dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(12, 4))  # no batch of one, which could not be normalised
held_out = TensorDataset(torch.randn(10, 4))
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
ddp = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def shard(of, **options):
    return DataLoader(of, 2, sampler=DistributedSampler(of, shuffle=False), **options)
def update(x):
    ddp(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
def train(batches):
    for x, in batches:
        update(x)
@torch.no_grad()
def evaluate(batches, model=net):
    model.eval()
    for x, in batches:
        model(x)
    net.train()
{body}
del ddp
dist.destroy_process_group()
"""

VALID = {
    "training and evaluation in turns": ("for _ in range(2):\n    train(shard(data)); evaluate(shard(held_out))", 2),
    "workers fetch ahead": ("train(shard(data)); evaluate(shard(held_out, num_workers=1))", 1),
    "an averaged copy is evaluated": (
        "train(shard(data)); averaged = copy.deepcopy(net); evaluate(shard(held_out), averaged)",
        1,
    ),
    "before the first update": ("evaluate(shard(held_out)); train(shard(data))", 1),
    "the wrapped model is evaluated": ("train(shard(data)); evaluate(shard(held_out), ddp)", 1),
    "the first training batch was read before": (
        "ahead = iter(shard(data)); x, = next(ahead); evaluate(shard(held_out)); update(x); train(ahead)",
        1,
    ),
    "two data sets": ("train(shard(data)); evaluate(shard(held_out)); evaluate(shard(Subset(held_out, range(4))))", 2),
    "a part as a data set of its own": (
        "train(shard(data)); a, b = random_split(held_out, [4, 6]); evaluate(shard(a)); evaluate(shard(b))",
        2,
    ),
    "rank 0 alone": ("train(shard(data))\nif rank == 0:\n    evaluate(DataLoader(held_out, 3))", 1),
    "each rank by itself": ("train(shard(data)); evaluate(DataLoader(held_out, 3))", 1),
    "all batches are read first": ("train(shard(data)); evaluate([*shard(held_out)])", 1),
}

NOT_JUDGED = {
    "nothing is evaluated": "train(shard(data))",
    "the training data": "train(shard(data)); evaluate(DataLoader(data, 2, sampler=range(rank, 6, 2)))",
    "only some batches": "train(shard(data)); evaluate(itertools.islice(shard(held_out), 2))",
    "a part by a sampler": (
        "train(shard(data)); evaluate(DataLoader(held_out, 2, sampler=SubsetRandomSampler(range(rank, 6, 2))))"
    ),
    "a part that is held out of the training data by samplers": (
        "train(DataLoader(data, 2, sampler=range(rank, 8, 2))); evaluate(DataLoader(data, 2, sampler=[8 + rank]))"
    ),
    "statistics are taken anew, in training mode": """
train(shard(data))
with torch.no_grad():
    for x, in itertools.islice(shard(data), 1):
        net(x)
""",
    "a teacher sees each batch before the student": """
teacher = copy.deepcopy(net).eval()
for x, in shard(data, drop_last=True):
    with torch.no_grad():
        teacher(x)
    update(x)
""",
    "samples are made by the model itself": """
for x, in shard(data, drop_last=True):
    with torch.no_grad():
        net.eval()
        made = net(x)
        net.train()
    update(made)
""",
}


def judged(run: Run, body: str) -> tuple[Any, int]:
    history = run(SCRIPT.replace("{body}", body))
    assert history.outcome.exit_code == 0
    return GUARANTEES["MetricRight"].check(history, None), len([*evaluations(history)])


@pytest.mark.parametrize(("body", "count"), VALID.values(), ids=VALID)
def test_evaluations_that_count_each_sample_once(run: Run, body: str, count: int) -> None:
    found, number = judged(run, body)
    assert (found.outcome, number) == ("valid", count), found


@pytest.mark.parametrize("body", NOT_JUDGED.values(), ids=NOT_JUDGED)
def test_what_is_no_evaluation_of_a_whole_data_set_is_no_alarm(run: Run, body: str) -> None:
    found, _ = judged(run, body)
    assert found.outcome == "not-applicable", found


@pytest.mark.parametrize(
    ("body", "lost"),
    [
        pytest.param("evaluate(shard(held_out, drop_last=True))", [8, 9], id="the last batches are dropped"),
        pytest.param("evaluate(DataLoader(held_out, 2, sampler=range(rank, 9, 2)))", [9], id="a shard is too short"),
        pytest.param("evaluate(shard(held_out)) if rank else None", [0, 2, 4, 6, 8], id="a rank does not take part"),
    ],
)
def test_evaluations_that_leave_out_samples(run: Run, body: str, lost: list[int]) -> None:
    found, _ = judged(run, f"train(shard(data)); {body}")
    assert (found.outcome, found.step, found.seen.get("lost")) == ("invalid", 3, lost), found
