"""GradientRight on records written by hand: one weight, and for each micro-batch its targets' gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from harness._tests.histories import Story, run
from harness.checks import GUARANTEES
from harness.scenario import Gradient
from harness.wire import Kind

Targets = Sequence[float]  # a micro-batch: the gradient of each target's loss
World = Sequence[Sequence[Targets]]  # of each rank its micro-batches
NUM_SIGNS = 4
WANTED = Gradient(losses="/losses.py")


def sketch(gradient: float) -> list[list[float]]:
    """Of a single weight."""
    return [[gradient, -gradient, gradient, gradient]]


def part(*heads: Targets, samples: int = 1, weights: Sequence[float] = (1.0, 0.5), has_drawn: bool = False) -> Any:
    named = {f"head {n}": {"count": len(t), "weight": weights[n], "sum": sketch(sum(t))} for n, t in enumerate(heads)}
    return {"samples": samples, "has_drawn": has_drawn, "heads": named}


def told(
    parts: Sequence[Sequence[Any]],
    applied: Sequence[float],
    *,
    wanted: Gradient | None = WANTED,
    device: str = "cpu",
    reduced: int = 500,
    before: Sequence[float] | None = None,
) -> Story:
    """Update 3 of a job, with these batches of each rank; ``before``: what was applied in update 2."""
    story = run(ranks=len(parts), gradient=wanted).start().updates(1, 1)
    for step, values in ((2, before), (3, applied)):
        if values is not None:
            for rank, mine in enumerate(parts):
                story.tell(
                    rank,
                    Kind.GRADIENT,
                    step=step,
                    phase="backward",
                    device=device,
                    names=["weight"],
                    numel=500,
                    applied=sketch(values[rank]),
                    norm=abs(values[rank]),
                    parts=mine,
                )
        story.updates(step, step)
    for event in story.events:
        if event["kind"] == Kind.COLLECTIVE and event["data"]["op"] == "all_reduce":
            event["data"]["numel"] = reduced
    return story.leave()


def verdict(story: Story) -> Any:
    return GUARANTEES["GradientRight"].check(story.history(), None)


def of(world: World) -> list[list[Any]]:
    return [[part(targets) for targets in micro_batches] for micro_batches in world]


ONE_RANK = [[[8.0], [0.0, 0.0, 0.0]]]
UNEVEN = [[[6.0]], [[0.0] * 5]]
COMBINED = [[[4.0, 4.0], [1.0]], [[-2.0], [0.5] * 4]]
ONE_EMPTY = [[[4.0, 4.0], [1.0]], [[-2.0], []]]
SEVEN_AND_SIX = [[[1.0] * 7], [[0.0] * 6]]
ANSWERS = [[[1.0], [0.0] * 9]]
NO_TARGETS: World = [[[2.0]], [[]], [[6.0, 6.0, 6.0]]]

RIGHT: dict[str, tuple[World, float]] = {
    "micro-batches of one rank, of 1 and 3 targets": (ONE_RANK, 2.0),
    "ranks of 1 and 5 targets": (UNEVEN, 1.0),
    "ranks and micro-batches of different length": (COMBINED, 1.125),
    "a micro-batch without a target": (ONE_EMPTY, 1.75),
    "ranks of 7 and 6 samples": (SEVEN_AND_SIX, 7 / 13),
    "answers of 1 and 9 tokens": (ANSWERS, 0.1),
    "a rank without a target": (NO_TARGETS, 5.0),
    "100 targets of 1 and 10 of 3": ([[[1.0] * 100], [[3.0] * 10]], 130 / 110),
    "no target at all": ([[[]], [[]]], 0.0),
}


@pytest.mark.parametrize(("world", "right"), RIGHT.values(), ids=RIGHT)
def test_each_target_counts_alike(world: World, right: float) -> None:
    assert verdict(told(of(world), [right] * len(world))).outcome == "valid"
    assert verdict(told(of(world), [right * (1 + 1e-3) + 1e-3] * len(world))).outcome == "invalid"


WRONG: dict[str, tuple[World, Sequence[float], str]] = {
    "huggingface/transformers#34242: a mean of means": (ONE_RANK, [4.0], "mean of the micro-batches' means"),
    "nothing is divided by the number of micro-batches": (ONE_RANK, [8.0], "not divided by their number"),
    "PrimeIntellect-ai/prime-rl#2358: each rank has its own mean": (UNEVEN, [3.0, 3.0], "mean of the ranks' means"),
    "DDP divides once more": (UNEVEN, [0.5, 0.5], "divided by the number of ranks once more (1/2)"),
    "combined: a mean of means": (COMBINED, [0.875] * 2, "mean of the micro-batches' means"),
    "combined: each rank has its own mean": (COMBINED, [1.5] * 2, "mean of the ranks' means"),
    "combined: DDP divides once more": (COMBINED, [0.5625] * 2, "divided by the number of ranks once more"),
    "huggingface/transformers#608: ranks of 7 and 6 count alike": (
        SEVEN_AND_SIX,
        [0.5] * 2,
        "mean of the ranks' means",
    ),
    "allenai/open-instruct#1137: each answer counts alike": (ANSWERS, [0.5], "mean of the micro-batches' means"),
    "pytorch/pytorch#67253: a rank without targets counts": (NO_TARGETS, [8 / 3] * 3, "mean of the ranks' means"),
    "huggingface/trl#7245: nothing is reduced": (COMBINED, [3.0, 0.0], "not reduced among the ranks"),
    "the last micro-batches alone": (COMBINED, [3 / 5] * 2, "last micro-batch"),
    "of one rank nothing": (COMBINED, [9 / 8, 0.0], "not that of its samples"),
    "a rank's samples are lost": (COMBINED, [0.0, 0.0], "not that of its samples"),
    "three times too large": (COMBINED, [3.375] * 2, "the right gradient times 3"),
}


@pytest.mark.parametrize(("world", "applied", "words"), WRONG.values(), ids=WRONG)
def test_a_known_mistake_is_told_by_its_value(world: World, applied: Sequence[float], words: str) -> None:
    found = verdict(told(of(world), applied))
    assert (found.outcome, found.step) == ("invalid", 3)
    assert words in found.reason, found.reason


def test_the_rank_whose_gradient_is_wrong_is_named() -> None:
    found = verdict(told(of(COMBINED), [1.125, 0.5]))
    assert (found.outcome, found.rank) == ("invalid", 1)


HEADS = [[part([4.0, 4.0], [2.0])], [part([1.0], [6.0] * 3)]]  # right: 9 / 3 + 0.5 * 20 / 4 = 5.5


@pytest.mark.parametrize(
    ("applied", "words"),
    [
        pytest.param(9 / 3 + 0.5 * 20 / 3, "all heads divided by the number of targets of 'head 0'", id="the first's"),
        pytest.param(9 / 7 + 0.5 * 20 / 7, "all heads divided by the number of all targets together", id="the sum"),
        pytest.param(9 / 3, "the head 'head 1' is missing", id="a head is lost"),
    ],
)
def test_each_head_has_a_denominator_of_its_own(applied: float, words: str) -> None:
    assert verdict(told(HEADS, [5.5, 5.5])).outcome == "valid"
    assert words in verdict(told(HEADS, [applied, applied])).reason


def test_a_gradient_that_was_not_set_to_zero_is_known_from_the_update_before() -> None:
    found = verdict(told(of(COMBINED), [1.125 + 1.125] * 2, before=[1.125] * 2))
    assert (found.outcome, found.step) == ("invalid", 3)
    assert "that of the update before" in found.reason


def test_the_same_targets_dealt_out_otherwise_have_the_same_gradient() -> None:
    targets = [0.1, 0.7, -0.3, 2.0, 5.5, -1.25, 0.0, 3.0]
    deals: list[World] = [
        [[targets]],
        [[targets[:3]], [targets[3:]]],
        [[targets[:1], targets[1:4]], [targets[4:]]],
        [[[x] for x in targets]],
    ]
    right = sum(targets) / 8
    for world in deals:
        assert verdict(told(of(world), [right * (1 + 1e-12)] * len(world))).outcome == "valid"


CLIPPED = Gradient(losses="/losses.py", clip_norm=1.0)


@pytest.mark.parametrize(
    ("applied", "outcome"),
    [
        pytest.param(1.0, "valid", id="clipped to the norm"),
        pytest.param(5.0, "invalid", id="not clipped"),
        pytest.param(0.2, "invalid", id="clipped while it was scaled"),
        pytest.param(-1.0, "invalid", id="of the other sign"),
    ],
)
def test_clipping_keeps_the_direction_and_bounds_the_norm(applied: float, outcome: str) -> None:
    world = of([[[5.0]], [[5.0]]])
    assert verdict(told(world, [applied] * 2, wanted=CLIPPED)).outcome == outcome


def test_what_is_below_the_norm_is_not_clipped() -> None:
    world = of([[[0.5]], [[0.5]]])
    assert verdict(told(world, [0.5] * 2, wanted=CLIPPED)).outcome == "valid"
    assert verdict(told(world, [0.25] * 2, wanted=CLIPPED)).outcome == "invalid"


def test_a_missing_reduction_is_found_even_where_the_numbers_are_right() -> None:
    alike = of([[[2.0]], [[2.0]]])
    assert verdict(told(alike, [2.0, 2.0])).outcome == "valid"
    found = verdict(told(alike, [2.0, 2.0], reduced=499))
    assert (found.outcome, found.rank, found.step, found.operation) == ("invalid", 0, 3, "all_reduce")
    assert "only 499 were reduced" in found.reason


def test_what_cannot_be_told_is_unknown() -> None:
    drawn = [[part([1.0], has_drawn=True)], [part([2.0], has_drawn=True)]]
    assert verdict(told(drawn, [9.0, 9.0])).outcome == "invalid"
    assert verdict(told(drawn, [9.0, 9.0], device="cuda")).outcome == "unknown"  # other dropout masks
    assert verdict(told(drawn, [1.5, 1.5], device="cuda")).outcome == "valid"

    failed = told(of(COMBINED), [1.125] * 2)
    failed.edit(Kind.GRADIENT, rank=1, data={"error": "losses.py: KeyError: 'x'"})
    assert verdict(failed).outcome == "unknown"
    assert "KeyError" in verdict(failed).reason

    assert verdict(told(of(COMBINED), [1.125] * 2).drop(Kind.GRADIENT, rank=1)).outcome == "unknown"
    assert verdict(told(of(COMBINED), [1.125] * 2, wanted=None)).outcome == "not-applicable"
