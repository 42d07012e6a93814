"""lm_tokens: the gradient that was applied, against one process in float64 that pads and accumulates nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DistributedSampler

from harness._tests.launched import Run
from harness._tests.workload_runs import Changes, Ran, names_of, relative_difference, run_workload
from harness.wire import Kind

HEAD_WEIGHTS = (1.0, 0.5)
RIGHT = 1e-5  # of float32 against float64
WRONG = 1e-2  # every mistake below is further off

Sums = list[list[Any]]  # of one head: rank -> micro-batch -> summed loss, or its gradient
Counts = list[list[int]]  # rank -> micro-batch -> number of targets
Rule = Callable[[Sums, Counts], Any]


# -- rules: from the micro-batches' sums to what the update should use, and what well-known mistakes use instead -----


def over_all_targets(sums: Sums, counts: Counts) -> Any:
    return sum(map(sum, sums)) / max(1, sum(map(sum, counts)))


def mean_of_ranks(sums: Sums, counts: Counts) -> Any:
    """Each rank divides by its own targets, and DDP by the number of ranks."""
    return sum(sum(own) / max(1, sum(n)) for own, n in zip(sums, counts, strict=True)) / len(sums)


def mean_of_micro_batches(sums: Sums, counts: Counts) -> Any:
    """Each micro-batch divides by its own targets."""
    means = [[s / max(1, n) for s, n in zip(own, ns, strict=True)] for own, ns in zip(sums, counts, strict=True)]
    return sum(sum(own) / len(own) for own in means) / len(means)


def divided_again_by_ddp(sums: Sums, counts: Counts) -> Any:
    return over_all_targets(sums, counts) / len(sums)


def undivided(sums: Sums, counts: Counts) -> Any:
    return sum(map(sum, sums))


@pytest.mark.parametrize(
    ("sums", "counts", "right", "mistakes"),
    [
        pytest.param([[100.0], [30.0]], [[100], [10]], 130 / 110, {mean_of_ranks: 2.0}, id="means of 1 and of 3"),
        pytest.param([[2.0], [18.0]], [[1], [3]], 5.0, {mean_of_ranks: 4.0}, id="gradients of 2 (n=1) and 6 (n=3)"),
        pytest.param([[4.0], [0.0], [10.0]], [[2], [0], [5]], 2.0, {mean_of_ranks: 4 / 3}, id="a rank with no target"),
        pytest.param(
            [[8.0, 0.0]], [[1, 3]], 2.0, {mean_of_micro_batches: 4.0, undivided: 8.0}, id="micro-batches of 1 and of 3"
        ),
        pytest.param(
            [[6.0], [0.0]], [[1], [5]], 1.0, {mean_of_ranks: 3.0, divided_again_by_ddp: 0.5}, id="ranks of 1 and of 5"
        ),
        pytest.param(
            [[8.0, 1.0], [-2.0, 2.0]],
            [[2, 1], [1, 4]],
            1.125,
            {mean_of_micro_batches: 0.875, mean_of_ranks: 1.5, divided_again_by_ddp: 0.5625},
            id="two ranks of two micro-batches: the value tells the mistake",
        ),
        pytest.param(
            [[8.0, 1.0], [-2.0, 0.0]], [[2, 1], [1, 0]], 1.75, {mean_of_ranks: 0.5}, id="a micro-batch with no target"
        ),
        pytest.param([[7.0], [0.0]], [[7], [6]], 7 / 13, {mean_of_ranks: 0.5}, id="7 and 6 samples"),
    ],
)
def test_the_rules_give_the_values_that_are_known(
    sums: Sums, counts: Counts, right: float, mistakes: dict[Rule, float]
) -> None:
    assert over_all_targets(sums, counts) == pytest.approx(right, rel=1e-12)
    assert {rule: rule(sums, counts) for rule in mistakes} == pytest.approx(mistakes, rel=1e-12)


# -- the reference ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Head:
    """What one head makes of an update, by the reference; each value: rank -> micro-batch."""

    weight: float
    losses: Sums
    gradients: Sums
    counts: Counts


def gradient(heads: Sequence[Head], rule: Rule = over_all_targets) -> torch.Tensor:
    """Of all parameters together."""
    total: torch.Tensor = sum(head.weight * rule(head.gradients, head.counts) for head in heads)
    return total


def with_one_count(heads: Sequence[Head]) -> list[Head]:
    """The mistake of dividing each head's loss by the number of tokens."""
    return [replace(head, counts=heads[0].counts) for head in heads]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return names_of("lm_tokens", tmp_path_factory.mktemp("names"), "--dropout", "0")


def reference(
    names: dict[str, Any], ran: Ran, step: int, *, ranks: int = 2, batch_size: int = 4, accumulate: int = 4
) -> list[Head]:
    """Update ``step`` of the first epoch from the checkpoint before it: float64, a sequence at a time, unpadded."""
    model = names["LanguageModel"]().double()
    model.load_state_dict(ran.part(step - 1, "model"))
    parameters = [*model.parameters()]
    heads = [Head(weight=weight, losses=[], gradients=[], counts=[]) for weight in HEAD_WEIGHTS]
    for rank in range(ranks):
        begin, size = (step - 1) * batch_size * accumulate, batch_size * accumulate
        mine = [*DistributedSampler(names["dataset"], ranks, rank, seed=0)][begin : begin + size]
        assert ran.sample_ids(rank, step) == mine
        batches = [[names["dataset"][i] for i in mine[j : j + batch_size]] for j in range(0, len(mine), batch_size)]
        for number, head in enumerate(heads):
            picked = [torch.cat([log_likelihoods(model, *sequence)[number] for sequence in batch]) for batch in batches]
            grads = [torch.autograd.grad(-one.sum(), parameters, materialize_grads=True) for one in picked]
            head.losses.append([-one.sum().item() for one in picked])
            head.gradients.append([torch.cat([g.flatten() for g in grad]) for grad in grads])
            head.counts.append([len(one) for one in picked])
    return heads


def log_likelihoods(
    model: Any, token_T: torch.Tensor, target_T: torch.Tensor, topic: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the next tokens and of the topic, as far as there are targets."""
    length = len(token_T)
    x_1TW = (model.token.weight[token_T] + model.position.weight[:length]).unsqueeze(0)
    x_TW = model.blocks(x_1TW, mask=torch.ones(length, length).triu(diagonal=1).bool()).squeeze(0)
    next_TV, topic_C = model.next_token(x_TW).log_softmax(dim=-1), model.topic(x_TW[-1]).log_softmax(dim=-1)
    has_target_T = target_T >= 0
    return next_TV[has_target_T, target_T[has_target_T]], topic_C[[topic] if topic >= 0 else []]


# -- the workload ----------------------------------------------------------------------------------------------------


def run_lm(run: Run, tmp_path: Path, steps: int, *args: str, ranks: int = 2, changes: Changes = ()) -> Ran:
    given = ("--dropout", "0", "--steps", str(steps), "--save-every", "1", *args)
    return run_workload(run, tmp_path, "lm_tokens", *given, ranks=ranks, changes=changes)


def test_its_gradient_is_that_of_one_process_on_all_sequences_together(
    run: Run, tmp_path: Path, names: dict[str, Any]
) -> None:
    ran = run_lm(run, tmp_path, 9)
    for step, num_micro_batches in ((8, 4), (9, 2)):  # a whole window, and the short one at the epoch's end
        heads = reference(names, ran, step)
        assert [len(counts) for counts in heads[0].counts] == [num_micro_batches] * 2
        assert relative_difference(ran.gradient(step), gradient(heads)) < RIGHT
        for mistake in (mean_of_ranks, mean_of_micro_batches, divided_again_by_ddp, undivided):
            assert relative_difference(ran.gradient(step), gradient(heads, mistake)) > WRONG, mistake
        assert relative_difference(ran.gradient(step), gradient(with_one_count(heads))) > WRONG
        printed = re.search(rf"step {step}: mean loss of a token ([\d.]+), of a topic ([\d.]+)", ran.printed)
        assert printed is not None
        losses = [float(loss) for loss in printed.groups()]
        assert losses == pytest.approx([over_all_targets(head.losses, head.counts) for head in heads], abs=1e-4)
        assert losses != pytest.approx([mean_of_ranks(head.losses, head.counts) for head in heads], abs=1e-3)


MEAN = "mean = (weight_H * sum_H / num_targets_H.clamp(min=1)).sum()"
OWN_MEAN = f"""own_H = torch.stack([(batch.target_BT >= 0).sum(), (batch.topic_B >= 0).sum()])
                {MEAN.replace("num_targets_H", "own_H")} / len(window)"""
MEAN_OF_RANKS = ("(world_size * mean)", "mean")


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        pytest.param(
            [("        dist.all_reduce(num_targets_H)\n", ""), MEAN_OF_RANKS],
            mean_of_ranks,
            id="the ranks' own targets",
        ),
        pytest.param([(MEAN, OWN_MEAN), MEAN_OF_RANKS], mean_of_micro_batches, id="the micro-batches' own targets"),
        pytest.param([MEAN_OF_RANKS], divided_again_by_ddp, id="DDP's division stays"),
        pytest.param([(MEAN, "mean = (weight_H * sum_H).sum()")], undivided, id="no division"),
    ],
)
def test_a_mistake_in_the_normalisation_is_seen_and_its_value_tells_which(
    run: Run, tmp_path: Path, names: dict[str, Any], changes: Changes, rule: Rule
) -> None:
    ran = run_lm(run, tmp_path, 2, changes=changes)
    heads = reference(names, ran, 2)
    assert relative_difference(ran.gradient(2), gradient(heads)) > WRONG
    assert relative_difference(ran.gradient(2), gradient(heads, rule)) < RIGHT


def test_one_denominator_for_both_heads_is_seen(run: Run, tmp_path: Path, names: dict[str, Any]) -> None:
    ran = run_lm(run, tmp_path, 2, changes=[(MEAN, MEAN.replace("num_targets_H", "num_targets_H[0]"))])
    heads = reference(names, ran, 2)
    assert relative_difference(ran.gradient(2), gradient(heads)) > WRONG
    assert relative_difference(ran.gradient(2), gradient(with_one_count(heads))) < RIGHT


NO_SYNC = "with contextlib.nullcontext() if number == len(window) else ddp.no_sync():"


@pytest.mark.parametrize(
    ("changes", "num_reductions", "agree"),
    [
        pytest.param([], 1, True, id="reduced in the last backward pass"),
        pytest.param([(NO_SYNC, "with contextlib.nullcontext():")], 4, True, id="reduced in each: right, and slow"),
        pytest.param([(NO_SYNC, "with ddp.no_sync():")], 0, False, id="never reduced"),
    ],
)
def test_gradients_are_reduced_once_an_update(
    run: Run, tmp_path: Path, changes: Changes, num_reductions: int, agree: bool
) -> None:
    ran = run_lm(run, tmp_path, 3, changes=changes)
    backward = [e for e in ran.history.of(Kind.COLLECTIVE, rank=0) if (e.step, e.phase) == (3, "backward")]
    assert len(backward) == num_reductions
    mine, other = ([e.data["params"] for e in ran.history.of(Kind.UPDATE, rank=rank)] for rank in range(2))
    assert (mine == other) == agree


def test_a_rank_with_no_target_takes_part(run: Run, tmp_path: Path, names: dict[str, Any]) -> None:
    ran = run_lm(run, tmp_path, 4, "--batch-size", "1", "--accumulate", "1", ranks=3)
    by_step = {step: reference(names, ran, step, ranks=3, batch_size=1, accumulate=1) for step in (3, 4)}
    assert any(1 <= head.counts.count([0]) <= 2 for heads in by_step.values() for head in heads)
    for step, heads in by_step.items():
        assert relative_difference(ran.gradient(step), gradient(heads)) < RIGHT
    assert "nan" not in ran.printed


def test_eight_ranks_of_eight_micro_batches_of_four_make_256_sequences_an_update(run: Run, tmp_path: Path) -> None:
    ran = run_lm(run, tmp_path, 1, "--accumulate", "8", ranks=8)
    assert "done: 1 steps of up to 256 sequences" in ran.printed
    ids = [i for rank in range(8) for i in ran.sample_ids(rank, 1)]
    assert len(ids) == len(set(ids)) == 256
