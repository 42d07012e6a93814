"""The batches of the update that is being made: which samples they held, and when they no longer count."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from harness.rank.batches import Batch
from harness.rank.used import UsedBatches


def batch(ids: str | None) -> Batch:
    return Batch(loader=0, epoch=0, ids=ids, addresses=set())


@pytest.mark.parametrize(
    ("ids", "has_loaders", "encoded"),
    [
        ([], False, "null"),
        ([], True, "[]"),
        (["[1, 2]"], True, "[1, 2]"),
        ([None], True, "null"),
        (["[1, 2]", "[3]"], True, "[1, 2, 3]"),
        (["[1, 2]", "[]"], True, "[1, 2]"),
        (["[1, 2]", None], True, "null"),
    ],
    ids=[
        "none, of a script without loaders",
        "none, where there are loaders",
        "one",
        "one whose samples are unknown",
        "two",
        "an empty one",
        "one whose samples are unknown, among others",
    ],
)
def test_the_samples_of_some_batches(ids: list[str | None], has_loaders: bool, encoded: str) -> None:
    used = UsedBatches()
    used.has_loaders = has_loaders
    assert used.encoded_ids([*map(batch, ids)]) == encoded


def test_what_an_earlier_launch_used_is_still_pending_before_a_loader_is_read() -> None:
    used = UsedBatches()
    used.begin_with([3, 4])
    assert used.ids() == [3, 4]
    assert [one.ids for one in used.taken()] == ["[3, 4]"]
    assert used.ids() == []


def _trained() -> tuple[nn.Linear, torch.optim.Optimizer]:
    model = nn.Linear(2, 1)
    model(torch.ones(1, 2)).sum().backward()
    return model, torch.optim.SGD(model.parameters())


@pytest.mark.parametrize(
    ("zero", "is_forgotten"),
    [
        (lambda model: model.zero_grad(), True),
        (lambda model: model.zero_grad(set_to_none=False), True),
        (lambda model: model.weight.grad.mul_(0.5), False),
        (lambda model: model.weight.grad.zero_(), False),
        (lambda _: None, False),
    ],
    ids=["none is left", "all are zeros", "they were clipped", "one is zero by itself", "nothing was done to them"],
)
def test_what_was_summed_up_is_forgotten_with_its_gradients(
    zero: Callable[[nn.Linear], object], is_forgotten: bool
) -> None:
    model, optimizer = _trained()
    used = UsedBatches()
    used.batches.append(batch("[1]"))
    used.went_backward(optimizer)
    used.batches.append(batch("[2]"))
    zero(model)
    assert used.has_forgotten() == is_forgotten
    assert [one.ids for one in used.batches] == (["[2]"] if is_forgotten else ["[1]", "[2]"])
    assert not used.has_forgotten()


def test_of_several_optimizers_zeroed_gradients_tell_nothing() -> None:
    model, _ = _trained()
    used = UsedBatches()
    used.batches.append(batch("[1]"))
    used.went_backward(None)
    model.zero_grad()
    assert not used.has_forgotten()
