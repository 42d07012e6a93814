"""batch_norm: each rank normalises by its own batch, and the statistics that count are rank 0's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DistributedSampler

from harness._tests.launched import Run
from harness._tests.workload_runs import Changes, Ran, names_of, relative_difference, run_workload
from harness.wire import Kind

MOMENTUM = 0.1  # of the running statistics
RIGHT = 1e-5  # of float32 against float64
WRONG = 1e-2
TAKE = "            take_buffers_of_rank_0()\n"


def run_bn(run: Run, tmp_path: Path, steps: int, changes: Changes = ()) -> Ran:
    args = ("--dropout", "0", "--steps", str(steps), "--save-every", "1")
    return run_workload(run, tmp_path, "batch_norm", *args, changes=changes)


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return names_of("batch_norm", tmp_path_factory.mktemp("names"), "--dropout", "0")


@pytest.fixture
def ran(run: Run, tmp_path: Path) -> Ran:
    return run_bn(run, tmp_path, 3)


def batches(names: dict[str, Any], ran: Ran, step: int) -> list[list[int]]:
    """The sample ids of each rank in an update of the first epoch."""
    shards = [[*DistributedSampler(names["dataset"], 2, rank, seed=0)] for rank in range(2)]
    ids = [shard[8 * (step - 1) : 8 * step] for shard in shards]
    assert [ran.sample_ids(rank, step) for rank in range(2)] == ids
    return ids


def gradient(names: dict[str, Any], ran: Ran, step: int, parts: list[list[int]]) -> torch.Tensor:
    """Mean of the gradients of ``parts``, each normalised by itself, float64; layers by hand."""
    saved = ran.part(step - 1, "model").items()
    weights = {name: w.double().requires_grad_() for name, w in saved if name.endswith(("weight", "bias"))}
    losses = []
    for ids in parts:
        x_BF = normalised(names["x_NF"][ids].double(), weights["0.weight"], weights["0.bias"])
        x_BF = normalised(x_BF @ weights["1.weight"].T + weights["1.bias"], weights["2.weight"], weights["2.bias"])
        logits_BC = x_BF.relu() @ weights["5.weight"].T + weights["5.bias"]
        losses.append(-logits_BC.log_softmax(dim=1)[range(len(ids)), names["y_N"][ids]].mean())
    grads = torch.autograd.grad(sum(losses) / len(parts), [*weights.values()])
    return torch.cat([g.flatten() for g in grads])


def normalised(x_BF: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return (x_BF - x_BF.mean(dim=0)) / (x_BF.var(dim=0, correction=0) + 1e-5).sqrt() * weight + bias


def test_its_gradient_is_the_mean_of_ranks_that_normalise_by_their_own_batches(ran: Ran, names: dict[str, Any]) -> None:
    for step in (2, 3):
        own = batches(names, ran, step)
        assert relative_difference(ran.gradient(step), gradient(names, ran, step, own)) < RIGHT
        assert relative_difference(ran.gradient(step), gradient(names, ran, step, [own[0] + own[1]])) > WRONG


def test_the_saved_statistics_are_those_of_rank_0(ran: Ran, names: dict[str, Any]) -> None:
    for step in (2, 3):
        before, after = ran.part(step - 1, "model"), ran.part(step, "model")
        expected = []
        for ids in batches(names, ran, step):
            x_BF = names["x_NF"][ids].double()
            mean = (1 - MOMENTUM) * before["0.running_mean"] + MOMENTUM * x_BF.mean(dim=0)
            variance = (1 - MOMENTUM) * before["0.running_var"] + MOMENTUM * x_BF.var(dim=0)
            expected.append(torch.cat([mean, variance]))
        saved = torch.cat([after["0.running_mean"], after["0.running_var"]])
        assert relative_difference(saved, expected[0]) < RIGHT
        assert relative_difference(saved, expected[1]) > WRONG
        assert after["0.num_batches_tracked"] == step


def test_what_is_evaluated_is_what_is_saved(ran: Ran, names: dict[str, Any]) -> None:
    for step in (1, 2, 3):
        assert ran.part(step, "progress")["accuracy"] == accuracy(names, ran, step)


def test_ranks_that_evaluate_with_their_own_statistics_are_seen(
    run: Run, tmp_path: Path, names: dict[str, Any]
) -> None:
    ran = run_bn(run, tmp_path, 3, changes=[(TAKE, "")])
    seen = [ran.part(step, "progress")["accuracy"] for step in (1, 2, 3)]
    assert seen != [accuracy(names, ran, step) for step in (1, 2, 3)]


def accuracy(names: dict[str, Any], ran: Ran, step: int) -> float:
    """Of the saved model on all held-out samples, by one process."""
    model = names["model"].float().eval()
    model.load_state_dict(ran.part(step, "model"))
    is_right_N = model(names["x_NF"][100:]).argmax(dim=1) == names["y_N"][100:]
    return int(is_right_N.sum()) / 33


def test_between_updates_buffers_differ_and_parameters_do_not(ran: Ran) -> None:
    ranks = [[*ran.history.of(Kind.UPDATE, rank=rank)] for rank in range(2)]
    for mine, other in zip(*ranks, strict=True):
        assert mine.data["buffers"] != other.data["buffers"]
        assert mine.data["params"] == other.data["params"]
