"""The interval advice against the papers' formulas and against the cost itself."""

from __future__ import annotations

import math

import pytest

from harness.report.interval import advise, cost, daly, young

DAY_S = 86_400.0


def test_known_values_of_both_papers() -> None:
    assert young(60, DAY_S) == pytest.approx(3219.94, abs=0.01)
    assert daly(60, DAY_S) == pytest.approx(3180.07, abs=0.05)


def test_a_save_longer_than_twice_the_time_between_failures_leaves_that_time() -> None:
    assert daly(200, 100) == 100


@pytest.mark.parametrize("save_s", [0.1, 5.0, 60.0, 600.0])
@pytest.mark.parametrize("mtbf_s", [3600.0, DAY_S])
def test_no_other_interval_is_noticeably_cheaper(save_s: float, mtbf_s: float) -> None:
    best_s = daly(save_s, mtbf_s)
    cheapest = min(cost(best_s * factor, save_s, 30, mtbf_s) for factor in (0.25, 0.5, 0.8, 0.9, 1.1, 1.25, 2, 4))
    assert cost(best_s, save_s, 30, mtbf_s) <= cheapest * 1.001


def test_the_cost_of_rare_failures_is_that_of_the_saves_alone() -> None:
    assert cost(100, 1, 30, 1e12) == pytest.approx(0.01, rel=1e-3)


def test_a_job_that_never_gets_anything_done_costs_without_end() -> None:
    assert math.isinf(cost(1e6, 1, 30, 1.0))


@pytest.mark.parametrize(
    ("save_s", "recovery_s", "mtbf_s"),
    [pytest.param(0, 1, 1, id="no save"), pytest.param(1, -1, 1, id="recovery"), pytest.param(1, 1, 0, id="failures")],
)
def test_times_that_cannot_be_are_refused(save_s: float, recovery_s: float, mtbf_s: float) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        advise(save_s, recovery_s, mtbf_s)
