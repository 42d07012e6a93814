"""A fault at each collective of a real job on two ranks: a skip is named as a skip, any other end by its own name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.baseline import load_baseline
from harness.checks.cause import Cause
from harness.checks.diagnosis import diagnose
from harness.history import load_history
from harness.plan import make_plan
from harness.run import Result, Session
from harness.scenario import load_scenario

pytestmark = pytest.mark.slow

HEAD = """
title = "a fault at one collective of a job"
workload = "ddp_mlp"
collective_timeout_s = 3.0
max_restarts = {restart}

[expect]
outcome = "stops"
"""
KILL_FIRST = """
[[fault]]
kind = "kill"
rank = 1
at = { step = 12, phase = "backward" }
"""
FAULT = """
[[fault]]
kind = "{kind}"
rank = {rank}
at = {{ restart = {restart}, {at} }}
"""
# (restart, where, rank, step, operation), in the order of a job; the restart goes on from step 10
PLACES = {
    "the vote that begins the load": (0, 'phase = "load", collective = 1', 1, 0, "all_gather"),
    "DDP compares the parameters' shapes": (0, 'phase = "load", collective = 2', 0, 0, "all_gather"),
    "DDP sends the shapes": (0, 'phase = "load", collective = 3', 0, 0, "broadcast"),
    "DDP sends the first weights": (0, 'phase = "load", collective = 4', 1, 0, "broadcast"),
    "DDP lays out its buckets anew": (0, "step = 2, collective = 1", 0, 2, "broadcast"),
    "the gradients of an update that is saved": (0, "step = 5, collective = 1", 1, 5, "all_reduce"),
    "the vote that begins the first save": (0, "step = 5, collective = 2", 0, 5, "all_gather"),
    "the vote on what was written": (0, "step = 5, collective = 3", 1, 5, "all_gather"),
    "the vote that ends a later save": (0, "step = 10, collective = 4", 0, 10, "all_gather"),
    "the last vote of the job": (0, "step = 20, collective = 4", 1, 20, "all_gather"),
    "the vote that begins a resume": (1, "collective = 1", 0, 0, "all_gather"),
    "the vote on a checkpoint": (1, "collective = 2", 1, 0, "all_gather"),
    "DDP compares shapes after a resume": (1, "collective = 3", 1, 0, "all_gather"),
    "DDP sends the shapes after a resume": (1, "collective = 4", 0, 0, "broadcast"),
    "DDP sends the weights after a resume": (1, "collective = 5", 0, 0, "broadcast"),
    "the first gradients after a resume": (1, "collective = 6", 1, 11, "all_reduce"),
}
OTHERS = ("DDP compares the parameters' shapes", "the vote on what was written", "the vote on a checkpoint")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    store = tmp_path_factory.mktemp("store")
    with Session(store, store / "runs") as session:
        yield session


def tried(session: Session, tmp_path: Path, place: str, kind: str) -> tuple[Result, Cause]:
    restart, at, rank, _, _ = PLACES[place]
    file = tmp_path / f"{kind}.toml"
    fault = FAULT.format(kind=kind, rank=rank, restart=restart, at=at)
    file.write_text(HEAD.format(restart=restart) + KILL_FIRST * restart + fault)
    result = session.run(make_plan(load_scenario(file), device="cpu"))
    return result, diagnose(load_history(result.run_dir), load_baseline(result.run_dir))[-1]


@pytest.mark.parametrize("place", PLACES)
def test_a_skip_is_named(session: Session, tmp_path: Path, place: str) -> None:
    result, cause = tried(session, tmp_path, place, "skip_collective")
    restart, _, rank, step, operation = PLACES[place]
    assert (cause.how, cause.rank, cause.restart, cause.step) == ("skipped", rank, restart, step), cause
    assert result.judgement.outcome == "passed", result.judgement
    (agree,) = [v for v in result.judgement.verdicts if v.guarantee == "CollectivesAgree"]
    assert (agree.outcome, agree.rank, agree.step, agree.operation) == ("invalid", rank, step, operation), agree


@pytest.mark.parametrize(("kind", "how"), [("raise", "exception"), ("kill", "signal"), ("exit", "exit")])
@pytest.mark.parametrize("place", OTHERS)
def test_another_end_at_the_same_place_is_no_skip(
    session: Session, tmp_path: Path, place: str, kind: str, how: str
) -> None:
    result, cause = tried(session, tmp_path, place, kind)
    assert (cause.how, cause.rank) == (how, PLACES[place][2]), cause
    assert result.judgement.outcome == "passed", result.judgement
    (agree,) = [v for v in result.judgement.verdicts if v.guarantee == "CollectivesAgree"]
    assert agree.outcome in ("valid", "not-applicable"), agree
