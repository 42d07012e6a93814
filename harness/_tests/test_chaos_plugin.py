"""Chaos as tests: what is collected, which part of the plans, and which exit code a night has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.chaos import night as night_module
from harness.chaos.command import make_order
from harness.chaos.night import Night, Order
from harness.chaos.trial import Trial

FOUND = Trial(number=-1, scenario=None, outcome="failed", headline="the canary is found", way="x")
MISSED = Trial(number=-1, scenario=None, outcome="passed", headline="nothing was found")
WELL = Trial(number=0, scenario=None, outcome="passed", headline="all is well")
BROKEN = Trial(number=1, scenario=None, outcome="failed", headline="ReplicasAgree is broken", way="ReplicasAgree")
OPEN = Trial(number=2, scenario=None, outcome="unknown", headline="FaultFired is unknown", way="FaultFired")


def order_of(tmp_path: Path, *, num_runs: int | None = None, minutes: float | None = None, shard: str = "1/1") -> Order:
    return make_order(
        seed=1, num_runs=num_runs, minutes=minutes, shard=shard, store_dir=tmp_path, runs_dir=tmp_path, out_dir=tmp_path
    )


@pytest.mark.parametrize(
    ("trials", "canary", "exit_code", "words"),
    [
        pytest.param([WELL], FOUND, 0, "1 passed", id="nothing was found, but the canary"),
        pytest.param([WELL, BROKEN, OPEN], FOUND, 1, "the night is failed", id="something is broken"),
        pytest.param([WELL, OPEN], FOUND, 2, "doubt: 1 of 2 runs: unknown", id="a run proves nothing"),
        pytest.param([WELL], MISSED, 2, "doubt: the canary was not found", id="the canary was not found"),
        pytest.param([WELL], None, 2, "doubt: the canary was not run", id="there was no canary"),
        pytest.param([], FOUND, 2, "doubt: no plan was run", id="there was no time for a plan"),
        pytest.param([BROKEN], MISSED, 1, "doubt: the canary was not found", id="broken is worse than unknown"),
    ],
)
def test_the_exit_code_and_the_report_are_those_of_the_night(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    trials: list[Trial],
    canary: Trial | None,
    exit_code: int,
    words: str,
) -> None:
    def run_night(order: Order, out: object) -> Night:
        order.runs_dir.mkdir(parents=True)
        return Night(order=order, trials=trials, canary=canary, duration_s=2.0)

    monkeypatch.setattr(night_module, "run_night", run_night)
    result = pytester.runpytest_inprocess("-m", "chaos", "--chaos-runs", "2", "--chaos-seed", "7", "-p", "no:xdist")
    assert result.ret == exit_code, result.stdout.str()
    result.stdout.fnmatch_lines([f"*{words}*"])
    (report,) = pytester.path.glob(".chaos/runs/*/report.json")
    (night,) = json.loads(report.read_text())["chaos"]
    assert (night["seed"], night["num_runs"]) == (7, len(trials))
    assert night["outcome"] == {0: "passed", 1: "failed", 2: "unknown"}[exit_code]


@pytest.mark.parametrize(
    ("shard", "num_runs"), [("1/1", 10), ("1/4", 3), ("2/4", 3), ("3/4", 2), ("4/4", 2), ("11/11", 0)]
)
def test_a_number_of_runs_is_shared_by_the_shards(tmp_path: Path, shard: str, num_runs: int) -> None:
    assert order_of(tmp_path, num_runs=10, shard=shard).num_runs == num_runs


def test_minutes_are_each_shards_own(tmp_path: Path) -> None:
    assert order_of(tmp_path, minutes=2, shard="3/4").duration_s == 120


def test_pytest_needs_a_budget_for_chaos(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("-m", "chaos")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*-m chaos needs a budget: --chaos-runs N, --chaos-minutes M*"])


def test_pytest_runs_a_night_instead_of_the_tests_that_are_there(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_other(): pass")
    result = pytester.runpytest_subprocess("-m", "chaos", "--chaos-runs", "3", "--collect-only", "-q")
    result.stdout.fnmatch_lines(["*chaos-1-of-1*"])
    result.stdout.no_fnmatch_line("*test_other*")
