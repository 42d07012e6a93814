"""Real ranks: gradients, batches and optimizers of uncommon kinds are judged rightly, or it is said why not."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from harness._tests.launched import Run
from harness.checks import GUARANTEES, Verdict
from harness.rank.gradients import _copied, _float64_by_name
from harness.scenario import Gradient

SCRIPT = """
import dataclasses
import torch.nn as nn
from torch import eye
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

@dataclasses.dataclass(slots=True, frozen=True)
class Batch:
    tokens: torch.Tensor
    floats: torch.Tensor
    classes: torch.Tensor

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.EmbeddingBag(20, 4, sparse=SPARSE, mode="sum")
        self.drop, self.head = nn.Dropout(), nn.Linear(8, 3)
    def forward(self, tokens, floats):
        return self.head(self.drop(torch.cat([self.table(tokens), floats @ EYE(4)], 1)))

class Scaling(torch.optim.SGD):
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            p.grad *= 2
        return super().step(closure)

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randint(20, (24, 5)), torch.randn(24, 4), torch.randint(3, (24,)))
collate = lambda items: Batch(*map(torch.stack, zip(*items)))
loader = DataLoader(data, 4, sampler=DistributedSampler(data), collate_fn=collate)
ddp = nn.parallel.DistributedDataParallel(Model())
optimizer = OPTIMIZER(ddp.parameters(), lr=0.1)
def closure():
    optimizer.zero_grad()
    loss = cross_entropy(ddp(tokens=batch.tokens, floats=batch.floats), batch.classes) * FACTOR
    loss.backward()
    return loss
for batch in loader:
    STEP
del ddp
dist.destroy_process_group()
"""
LOSSES = """
from torch.nn.functional import cross_entropy
def losses(model, batch):
    logits = model(tokens=batch.tokens, floats=batch.floats)
    return {"class": (cross_entropy(logits, batch.classes, reduction="sum"), len(batch.classes))}
"""
USUAL = {
    "EYE": "torch.eye",
    "SPARSE": "False",
    "OPTIMIZER": "torch.optim.SGD",
    "FACTOR": "1",
    "STEP": "closure(); optimizer.step()",
}


NO_TARGET = """
    none = 0 * logits.sum()
    none.register_hook(lambda gradient: 1 / 0)
    return {"none": (none, 0), """


def judged(run: Run, tmp_path: Path, text_of_losses: str = LOSSES, **changes: str) -> Verdict:
    losses = tmp_path / "losses.py"
    losses.write_text(text_of_losses)
    text = SCRIPT
    for name, value in (USUAL | changes).items():
        text = text.replace(name, value)
    history = run(text, gradient=Gradient(losses=str(losses)))
    assert history.outcome.exit_code == 0
    return GUARANTEES["GradientRight"].check(history, None)


@pytest.mark.parametrize("sparse", ["False", "True"])
@pytest.mark.parametrize(("factor", "outcome"), [("1", "valid"), ("3", "invalid")])
def test_dropout_on_named_arguments_out_of_a_dataclass_with_slots(
    run: Run, tmp_path: Path, sparse: str, factor: str, outcome: str
) -> None:
    found = judged(run, tmp_path, SPARSE=sparse, FACTOR=factor)
    assert found.outcome == outcome, found


@pytest.mark.parametrize(("factor", "outcome"), [("1", "valid"), ("3", "invalid")])
def test_a_head_without_targets_costs_no_backward_pass(run: Run, tmp_path: Path, factor: str, outcome: str) -> None:
    found = judged(run, tmp_path, LOSSES.replace("\n    return {", NO_TARGET), FACTOR=factor)
    assert found.outcome == outcome, found


@pytest.mark.parametrize(("factor", "outcome"), [("1", "valid"), ("3", "invalid")])
def test_a_model_that_makes_tensors_by_a_function_imported_by_its_name(
    run: Run, tmp_path: Path, factor: str, outcome: str
) -> None:
    found = judged(run, tmp_path, EYE="eye", FACTOR=factor)
    assert found.outcome == outcome, found


def test_only_the_thread_that_looks_gets_float64_and_the_names_are_put_back() -> None:
    stock, made = torch.ones, []
    with _float64_by_name():
        other = threading.Thread(target=lambda: made.append(torch.ones(1)))
        other.start()
        other.join()
        made += [torch.ones(1), torch.full((1,), 2), torch.ones(1, dtype=torch.float32)]
    assert [tensor.dtype for tensor in made] == [torch.float32, torch.float64, torch.int64, torch.float32]
    assert torch.ones is stock


def test_a_copied_model_shares_nothing_with_it() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    model.seen = {}  # type: ignore[assignment]
    twin: Any = _copied(model)
    assert twin[1].weight is twin[0].weight is not model[0].weight
    twin.seen["a"] = 1
    twin.register_forward_pre_hook(lambda *_: None)
    assert not model.seen
    assert not model._forward_pre_hooks


@pytest.mark.parametrize(
    ("optimizer", "step", "words"),
    [
        pytest.param("torch.optim.LBFGS", "optimizer.step(closure)", "by the closure that it is given", id="LBFGS"),
        pytest.param("torch.optim.SGD", "optimizer.step(closure)", "by the closure that it is given", id="a closure"),
        pytest.param("Scaling", "closure(); optimizer.step()", "Scaling.step() calls that of its base", id="a step"),
    ],
)
def test_gradients_that_the_optimizer_makes_within_its_step_are_unknown(
    run: Run, tmp_path: Path, optimizer: str, step: str, words: str
) -> None:
    found = judged(run, tmp_path, OPTIMIZER=optimizer, STEP=step)
    assert found.outcome == "unknown", found
    assert words in found.reason
