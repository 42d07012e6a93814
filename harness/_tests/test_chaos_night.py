"""Whole nights on real ranks: the canary, what is found, what is written, and how a night ends early."""

from __future__ import annotations

import io
import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.chaos import trial as trial_module
from harness.chaos.canary import Canary, canaries, draw_canary
from harness.chaos.command import EXIT_CODES, summary, write_night
from harness.chaos.draw import rng_of
from harness.chaos.finding import pin_down
from harness.chaos.job import JobSource, changed, make_job, workloads
from harness.chaos.night import Order, run_night
from harness.chaos.trial import Trial, open_session, try_number, try_scenario
from harness.expect import Judgement
from harness.faults import At
from harness.faults.corrupt_sample import CorruptSample
from harness.faults.kill import Kill
from harness.history import Baseline
from harness.plan import Expect, Plan
from harness.run import Result
from harness.scenario import Scenario, load_scenario

pytestmark = pytest.mark.timeout(300)  # seconds: each makes real runs, in processes of its own

HEALTHY = changed(
    make_job(workload="ddp_mlp", ranks=2, steps=8, save_every=2),
    title="healthy",
    max_restarts=1,
    fault=(Kill(rank=1, at=At(step=3, phase="backward")),),
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared by all tests here, so that a fault-free run is made once."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def session(store: Path) -> Iterator[Path]:
    """Where the runs of this process are."""
    open_session(store, store / "here")
    yield store / "here"
    trial_module._session.__exit__(None, None, None)


def order(store: Path, name: str, **fields: Any) -> Order:
    base = Order(
        seed=1,
        num_runs=2,
        duration_s=None,
        store_dir=store,
        runs_dir=store / name,
        out_dir=store / f"{name}-found",
        jobs=2,
        source=JobSource(workload="ddp_mlp", num_ranks=(2,)),
    )
    return replace(base, **fields)


def test_a_night_passes_with_its_canary_found_and_keeps_no_run_that_passed(store: Path) -> None:
    out = io.StringIO()
    night = run_night(order(store, "well"), out)
    assert night.outcome == "passed", [*summary(night), out.getvalue()]
    assert night.canary is not None
    assert night.canary.outcome == "failed"
    assert [path.name for path in (store / "well").iterdir()] == ["canary-1-1"]
    report = json.loads(write_night(night).read_text())
    assert [result["number"] for result in report["results"]] == sorted(trial.number for trial in night.trials)
    (told,) = report["chaos"]
    assert told["outcome"] == "passed"
    drawn = sum(len(trial.scenario.faults) for trial in night.trials if trial.scenario is not None)
    assert any(line.startswith(f"faults: {drawn} drawn, {drawn} fired") for line in summary(night))
    places = [
        (fault["kind"], fault["phase"], result["workload"])
        for result in report["results"]
        for fault in result["faults"]
    ]
    counted = [((c["kind"], c["phase"], c["workload"]), c["passed"]) for c in told["coverage"]]
    assert sum(count for _, count in counted) == len(places)
    assert {cell for cell, _ in counted} == set(places)


@pytest.mark.slow
def test_a_night_whose_canary_is_not_found_proves_nothing(store: Path) -> None:
    night = run_night(order(store, "no-canary", num_runs=1, canary=Canary(HEALTHY, frozenset())), io.StringIO())
    assert {trial.outcome for trial in night.trials} == {"passed"}
    assert (night.outcome, EXIT_CODES[night.outcome]) == ("unknown", 2)
    assert any("the canary was not found: passed" in doubt for doubt in night.doubts)


def test_a_planted_bug_is_found_made_small_and_written_as_a_file_that_fails_in_the_same_way(
    session: Path, tmp_path: Path
) -> None:
    kills = [Kill(rank=0, at=At(step=7 + n, phase="backward", restart=n)) for n in range(2)]
    planned = Scenario(
        workload="planted/forgets_the_position",
        steps=12,
        save_every=5,
        max_restarts=2,
        fault=(CorruptSample(rank=1, at=At(step=12, restart=2)), *kills),
        expect=Expect(outcome="guaranteed"),
    )
    found = pin_down(try_scenario(planned, "planted"), tmp_path, "chaos-1-1", within_s=60)
    assert found.trial.outcome == "failed"
    assert found.is_reproduced, found
    assert found.file is not None
    (fault,) = load_scenario(found.file).faults
    assert fault.kind == "kill"
    again = try_scenario(load_scenario(found.file), "again")
    assert (again.outcome, again.way) == ("failed", found.trial.way)


class WithoutBaseline:
    """A session in which the run without faults fails, and a run that is judged comes to ``outcome``."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome

    def baseline(self, _: Plan) -> Baseline:
        reason = "the run without faults did not end well: exit code 1; rank 1: ValueError: a bug at train.py:7"
        return Baseline(repeatable=None, final={}, updates={}, sample_ids={}, reason=reason, run_dir="/s/b/run-1")

    def run(self, plan: Plan) -> Result:
        assert plan.faults == ()
        judgement = Judgement(outcome=self.outcome, headline=f"{plan.workload} alone", verdicts=(), blamed=())
        return Result(judgement=judgement, run_dir=Path("/s/runs/alone"), duration_s=1.0)


def test_a_job_that_is_no_ground_for_faults_is_tried_alone_and_what_is_wrong_with_it_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trial_module, "_session", WithoutBaseline("failed"), raising=False)
    trial = try_number(1, 0, False, JobSource(workload="never_run_before"))
    assert (trial.outcome, trial.headline, trial.run_dir) == ("failed", "never_run_before alone", Path("/s/runs/alone"))
    assert trial.scenario is not None
    assert trial.scenario.faults == ()


def test_a_job_that_cannot_be_used_is_named_with_its_rank_its_exception_and_its_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trial_module, "_session", WithoutBaseline("passed"), raising=False)
    trial = try_number(1, 0, False, JobSource(workload="never_run_before", num_ranks=(3,)))
    assert trial.outcome == "error"
    assert trial.headline.startswith("never_run_before on 3 ranks, ")
    assert "rank 1: ValueError: a bug at train.py:7; the records are in /s/b/run-1" in trial.headline


@pytest.mark.parametrize(
    ("outcome", "blamed", "is_found"),
    [("failed", ["EndsLikeBaseline", "SamplesOnce"], True), ("failed", ["EndsInTime"], False), ("passed", [], False)],
)
def test_a_canary_is_found_only_by_the_bug_that_was_planted(outcome: Any, blamed: list[str], is_found: bool) -> None:
    trial = Trial(number=-1, scenario=HEALTHY, outcome=outcome, headline="", blamed=tuple(blamed))
    assert Canary(HEALTHY, frozenset({"SamplesOnce"})).is_found_by(trial) == is_found


def test_the_canaries_are_planted_bugs_and_drawn_from_the_seed() -> None:
    assert len(canaries()) > 20
    assert "pickles_and_never_loads" not in canaries()  # it never fails: the records leave it open
    names = [draw_canary(seed).scenario.title for seed in range(30)]
    assert names == [draw_canary(seed).scenario.title for seed in range(30)]
    assert len(set(names)) > 10
    assert all(draw_canary(seed).scenario.expect == Expect(outcome="guaranteed") for seed in range(30))
    assert not any(name.startswith("planted") for name in workloads())


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_a_signal_ends_the_night_with_what_was_found_so_far(
    store: Path, tmp_path: Path, number: signal.Signals
) -> None:
    command = [sys.executable, "-m", "harness", "chaos", "--seed", "1", "--runs", "100000", "--jobs", "2"]
    command += ["--store", str(store), "--out", str(tmp_path / "found"), "--workload", "ddp_mlp"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path) as night:
        assert night.stdout is not None
        lines = []
        for line in night.stdout:
            lines.append(line)
            if "canary found" in line:
                break
        below = psutil.Process(night.pid).children(recursive=True)
        night.send_signal(number)
        lines += night.stdout.readlines()
        assert night.wait() == EXIT_CODES["unknown"], lines
    assert "doubt: it was interrupted\n" in lines
    report = json.loads(Path(lines[-1].removeprefix("report: ").strip()).read_text())
    assert report["chaos"][0]["outcome"] == "unknown"
    assert report["chaos"][0]["canary"]["result"] == "failed"
    assert len(below) > 1
    assert psutil.wait_procs(below, timeout=20)[1] == []


WRONG: dict[str, tuple[list[str], str]] = {
    "no budget": ([], "a number of runs, or of minutes"),
    "no run": (["--runs", "0"], "0 runs: must be at least 1"),
    "no time": (["--minutes", "0"], "0 minutes: must be above 0"),
    "a shard of none": (["--runs", "1", "--shard", "3/2"], "shard '3/2': must be I/N"),
    "words for a shard": (["--runs", "1", "--shard", "half"], "shard 'half': must be I/N"),
    "no workload": (["--runs", "1", "--workload", "ddp_mpl"], "unknown workload; did you mean 'ddp_mlp'?"),
    "a seed below 0": (["--runs", "1", "--seed", "-1"], "seed -1: must be 0.."),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_impossible_order_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    from harness.__main__ import main

    arguments, words = WRONG[name]
    assert main(["chaos", *arguments]) == 2
    assert words in capsys.readouterr().err


# -- in pytest -----------------------------------------------------------------------------------------------------


def _is_small(seed: int, number: int) -> bool:
    job = JobSource().draw(rng_of(seed, number))
    return (job.workload, job.ranks) == ("ddp_mlp", 2)


@pytest.mark.slow
def test_the_workers_of_xdist_share_a_night(pytester: pytest.Pytester, store: Path) -> None:
    arguments = ["-m", "chaos", "-n", "2", "--chaos-runs", "2", "--chaos-store", str(store)]
    seed = next(seed for seed in itertools.count() if all(_is_small(seed, number) for number in range(2)))
    result = pytester.runpytest_subprocess(*arguments, "--chaos-seed", str(seed), timeout=280)
    result.assert_outcomes(passed=2)
    (session_dir,) = sorted((store / "runs").glob("*/chaos-1-of-2"))[-1:]
    report = json.loads((session_dir.parent / "report.json").read_text())
    assert sorted(night["shard"] for night in report["chaos"]) == ["1/2", "2/2"]
    assert [night["num_runs"] for night in report["chaos"]] == [1, 1]
    result.stderr.fnmatch_lines(["*canary found*"])
