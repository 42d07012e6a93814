"""MetricRight where the scenario states a metric: the numbers that are printed against those of the reference."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness._tests.histories import Story, run
from harness._tests.test_checks_metric import FOUR, PADDED, evaluate, job
from harness.checks import GUARANTEES
from harness.checks.base import Verdict
from harness.scenario import Metric
from harness.wire import Kind

METRIC = Metric(reported="accuracy ([0-9.]+)", reference="/reference.py")
Printed = dict[int, tuple[str, ...]]


def told(*values: float | None, printed: Printed, exit_code: int = 0, story: Story | None = None) -> Verdict:
    """A launch with these values of the reference, after updates 1, 2, ..."""
    story = story or run(metric=METRIC).start()
    for step, value in enumerate(values, start=1):
        story.updates(step, step).tell(0, Kind.METRIC, phase="eval", value=value, problem="" if value else "it raised")
    return judged(story.leave(), printed, exit_code)


def judged(story: Story, printed: Printed, exit_code: int = 0) -> Verdict:
    return GUARANTEES["MetricRight"].check(replace(story.history(exit_code), reported=printed), None)


@pytest.mark.parametrize(
    ("text", "true"),
    [
        pytest.param("0.8000", 0.8, id="equal"),
        pytest.param("0.6667", 2 / 3, id="rounded to what is printed"),
        pytest.param("67", 66.6, id="no digit after the point"),
        pytest.param("6.7e-1", 0.6666, id="an exponent"),
        pytest.param("0.66666668653488", 2 / 3, id="a float32 with all its digits"),
        pytest.param("nan", float("nan"), id="both are no number"),
        pytest.param("-inf", float("-inf"), id="both are beyond all numbers"),
    ],
)
def test_numbers_that_are_those_of_the_reference(text: str, true: float) -> None:
    assert told(true, printed={0: (text,)}).outcome == "valid"


@pytest.mark.parametrize(
    ("text", "true"),
    [
        pytest.param("0.6667", 0.8, id="another"),
        pytest.param("0.6666", 2 / 3, id="off by the last digit"),
        pytest.param("0.250000001", 0.25001, id="more digits than they have in common"),
        pytest.param("nan", 0.5, id="no number"),
        pytest.param("0.5", float("nan"), id="none is true"),
        pytest.param("inf", float("-inf"), id="the other infinity"),
    ],
)
def test_numbers_that_are_not(text: str, true: float) -> None:
    found = told(0.5, true, printed={0: ("0.5", text)})
    assert (found.outcome, found.rank, found.step, found.seen["reported"]) == ("invalid", 0, 2, text), found


def resumed(before: int) -> Story:
    """``before`` evaluations, the last of them cut off; then one more."""
    story = run(metric=METRIC).start()
    for step in range(1, before + 1):
        story.updates(step, step).tell(0, Kind.METRIC, phase="eval", value=0.5, problem="")
    return story.kill(0).cut_off().start(load=1)


def test_of_a_launch_that_failed_the_last_numbers_may_be_missing() -> None:
    assert told(0.25, printed={0: ("0.5",), 1: ("0.25",)}, story=resumed(2)).outcome == "valid"
    assert told(0.25, printed={0: ("0.5",), 1: ("0.26",)}, story=resumed(2)).restart == 1
    assert told(0.25, printed={0: ("0.5",) * 3, 1: ("0.25",)}, story=resumed(2)).outcome == "unknown"


@pytest.mark.parametrize(
    ("values", "printed", "said"),
    [
        pytest.param([0.5, 0.5], ("0.5",), "evaluated 2 times and printed 1 numbers", id="too few are printed"),
        pytest.param([0.5], ("0.5", "0.5"), "evaluated 1 times and printed 2 numbers", id="too many are printed"),
        pytest.param([], (), "no evaluation is on record", id="there is none"),
        pytest.param([0.5, None], ("0.5", "0.5"), "it raised", id="the reference failed"),
        pytest.param([0.5], ("50.0",), "in another unit", id="what is printed is in percent"),
        pytest.param([66.67], ("0.6667",), "in another unit", id="the reference is in percent"),
        pytest.param([0.5], ("many",), "'many' is printed: no number", id="what is printed is no number"),
    ],
)
def test_what_cannot_be_compared_is_unknown(values: list[float | None], printed: tuple[str, ...], said: str) -> None:
    found = told(*values, printed={0: printed})
    assert found.outcome == "unknown", found
    assert said in found.reason


def with_metric(shards: list[list[int]], **declared: int) -> Story:
    story = run(ranks=len(shards), metric=METRIC).start().updates(1, 4)
    evaluate(story, shards, **declared).tell(0, Kind.METRIC, phase="eval", value=0.8, problem="")
    return story.updates(5, 6).leave()


def test_samples_that_come_twice_are_right_if_the_number_is() -> None:
    assert judged(with_metric(PADDED, padding=2), {0: ("0.8",)}).outcome == "valid"
    assert judged(with_metric(PADDED), {0: ("0.8",)}).outcome == "valid"
    assert judged(with_metric(PADDED, padding=2), {0: ("0.667",)}).outcome == "invalid"
    assert judged(job(PADDED), {}).outcome == "invalid"


def test_samples_that_are_left_out_are_wrong_whatever_the_number() -> None:
    found = judged(with_metric([*FOUR[:3], [3]]), {0: ("0.8",)})
    assert (found.outcome, found.seen["lost"]) == ("invalid", [7])
