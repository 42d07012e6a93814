"""A night's time is kept, and what is printed meanwhile says how it stands."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from harness.chaos.budget import FIRST_GUESS_S, Budget
from harness.chaos.progress import EVERY_S, Progress
from harness.chaos.trial import Trial, compared


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def budget(num_runs: int | None = None, duration_s: float | None = None) -> tuple[Budget, Clock]:
    clock = Clock()
    return Budget(num_runs, duration_s, clock), clock


@pytest.mark.parametrize(
    ("elapsed_s", "took_s", "fits"),
    [
        pytest.param(0, [], True, id="the first run of a minute"),
        pytest.param(60 - FIRST_GUESS_S + 0.1, [], False, id="nothing is known of runs, and little time is left"),
        pytest.param(50, [2.0] * 20, True, id="short runs fit to the end"),
        pytest.param(59, [2.0] * 20, False, id="the last one that does not fit is not begun"),
        pytest.param(50, [2.0] * 18 + [30.0] * 2, False, id="a tenth of them took longer than is left"),
        pytest.param(61, [0.1], False, id="the time is over"),
    ],
)
def test_a_run_is_begun_only_if_it_fits_into_the_time(elapsed_s: float, took_s: list[float], fits: bool) -> None:
    given, clock = budget(duration_s=60)
    clock.now_s += elapsed_s
    for each in took_s:
        given.ended(each)
    assert given.fits(num_begun=5) is fits


def test_a_number_of_runs_is_a_bound_beside_the_time() -> None:
    given, clock = budget(num_runs=3, duration_s=60)
    assert [given.fits(begun) for begun in (0, 2, 3)] == [True, True, False]
    clock.now_s += 60
    assert not given.fits(0)
    assert budget(num_runs=3)[0].left_s is None


def trial(number: int = 0, outcome: str = "passed", headline: str = "all is well", **fields: object) -> Trial:
    way = "" if outcome == "passed" else headline
    return Trial(number=number, scenario=None, outcome=outcome, headline=headline, way=way, **fields)  # type: ignore[arg-type]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def told(out: io.StringIO) -> Progress:
    given, clock = budget(num_runs=10)
    progress = Progress(out, given)
    for number in range(4):
        clock.now_s += EVERY_S / 2
        progress.ended(trial(number) if number != 1 else trial(1, "failed", "ReplicasAgree is broken"))
    return progress


def test_while_nothing_has_ended_the_line_says_what_goes_on() -> None:
    given, clock = budget(num_runs=10)
    out = io.StringIO()
    progress = Progress(out, given)
    progress.running.update({"canary": 1, "plan": 3})
    clock.now_s += EVERY_S
    progress.tick()
    assert out.getvalue() == (
        "chaos: no plan has ended yet, after 15 s; now: the canary, 3 plans, each job first without faults\n"
    )


def test_while_plans_are_made_smaller_the_line_says_so() -> None:
    progress = told(io.StringIO())
    progress.running.update({"plan": 1, "smaller": 2})
    assert progress.line().startswith("chaos: 4 runs (1 failed, 3 passed); now: 2 made smaller; ")


def test_plain_lines_come_at_intervals_and_each_failure_at_once() -> None:
    out = io.StringIO()
    told(out)
    lines = out.getvalue().splitlines()
    assert lines[0] == "chaos: failed, plan 1: ReplicasAgree is broken"
    assert len(lines) == 3
    assert "\r" not in out.getvalue()
    assert lines[-1] == (
        "chaos: 4 runs (1 failed, 3 passed); 8 a minute; 45 s left; last: plan 1: ReplicasAgree is broken"
    )


def test_on_a_terminal_the_line_stays_in_its_place() -> None:
    out = Terminal()
    told(out)
    assert out.getvalue().count("\n") == 1  # the failure alone
    assert out.getvalue().rpartition("\r")[2].startswith("\x1b[Kchaos: 4 runs (1 failed, 3 passed)")


def test_two_runs_of_one_plan_that_differ_are_unknown_and_both_stay(tmp_path: Path) -> None:
    dirs = [tmp_path / name for name in ("one", "two")]
    for each in dirs:
        each.mkdir()
    one, other = (trial(state={"final state": digest}, run_dir=d) for digest, d in zip("ab", dirs, strict=True))
    found = compared(one, other)
    assert found.outcome == "unknown"
    assert "differ in final state" in found.headline
    assert str(dirs[1]) in found.headline
    assert all(each.is_dir() for each in dirs)


def test_two_runs_that_come_to_the_same_pass_and_leave_nothing(tmp_path: Path) -> None:
    dirs = [tmp_path / name for name in ("one", "two")]
    for each in dirs:
        each.mkdir()
    one, other = (trial(state={"final state": "a"}, run_dir=d) for d in dirs)
    assert compared(one, other).outcome == "passed"
    assert not any(each.exists() for each in dirs)


def test_a_rank_that_came_to_its_last_word_in_one_run_alone_is_no_difference() -> None:
    one, other = (trial(state={"restarts": 1} | finals) for finals in ({"final state of rank 0": "a"}, {}))
    assert compared(one, other).outcome == compared(other, one).outcome == "passed"


def test_two_runs_with_another_outcome_are_unknown() -> None:
    found = compared(trial(state={}), trial(0, "failed", "ReplicasAgree is broken", state={}))
    assert (found.outcome, "their outcome" in found.headline) == ("unknown", True)
