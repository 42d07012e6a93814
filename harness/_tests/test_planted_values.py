"""Planted bugs whose wrong numbers are known from the reports: the records show these very numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.history import load_history
from harness.plan import make_plan
from harness.run import Session
from harness.scenario import load_scenario
from harness.wire import Kind
from workloads import planted

FOLDER = Path(planted.__file__).parent


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    store = tmp_path_factory.mktemp("store")
    with Session(store, store / "runs") as session:
        yield session


def ran(session: Session, name: str) -> tuple[Path, dict[str, Any]]:
    """Its run directory, and what the first guarantee that the scenario lists was seen to be broken by."""
    scenario = load_scenario(FOLDER / f"{name}.toml")
    run = session.run(make_plan(scenario, device="cpu"))
    assert run.judgement.outcome == "passed", run.judgement.headline
    broken = scenario.expect.broken[0].guarantee
    return run.run_dir, next(v.seen for v in run.judgement.verdicts if v.guarantee == broken)


def seen(session: Session, name: str) -> dict[str, Any]:
    return ran(session, name)[1]


@pytest.mark.parametrize(
    ("name", "learning_rate", "right"),
    [
        pytest.param("scheduler_advanced_twice", 0.34549, 0.79389, id="advanced again by the 30 steps done"),
        pytest.param("learning_rate_not_restored", 1.0, 0.79389, id="the optimizer's own is not restored"),
        pytest.param("scheduler_at_the_epoch", 0.2, 0.8, id="begun at epoch 1 in place of update 8"),
    ],
)
def test_learning_rates(session: Session, name: str, learning_rate: float, right: float) -> None:
    found = seen(session, name)
    assert found["what"] == "lr"
    assert (found["replayed"], found["first time"]) == (
        [pytest.approx(learning_rate, abs=5e-6)],
        [pytest.approx(right, abs=5e-6)],
    )


@pytest.mark.parametrize(
    ("name", "count"),
    [
        pytest.param("sampler_epoch_not_restored", 4, id="16 samples, 2 ranks of 2, after 2 batches of epoch 1"),
        pytest.param("position_in_updates", 6, id="3 micro-batches of one sample on each of 2 ranks"),
    ],
)
def test_samples_lost_and_repeated(session: Session, name: str, count: int) -> None:
    found = seen(session, name)
    assert (len(found["lost"]), len(found["used too often"])) == (count, count)


def test_a_resumed_epoch_goes_on_in_the_order_of_the_next_one(session: Session) -> None:
    """Of 10 samples shuffled by seed 42, rank 0 of 2 has 2, 1, 4, 0, 3 in epoch 0 and 8, 9, 5, 6, 2 in epoch 1."""
    found = seen(session, "epoch_one_too_far")
    assert (found["used"]["rank 0"], found["expected"]["rank 0"]) == ([9], [1])


def test_one_rank_halves_its_scale_alone(session: Session) -> None:
    run_dir, found = ran(session, "overflow_on_one_rank_alone")
    assert [found[f"rank {rank}"] for rank in range(3)] == ["made", "left out", "made"]
    scales = {update.rank: update.data["scaler"][0][0] for update in load_history(run_dir).of(Kind.UPDATE, step=7)}
    assert scales == {0: 1024.0, 1: 512.0, 2: 1024.0}


def test_each_rank_that_restored_the_stream_of_another_is_listed(session: Session) -> None:
    assert seen(session, "random_state_of_rank_0_everywhere")["ranks"] == [1, 2, 3]


def test_blocks_of_ten_samples_rounded_up(session: Session) -> None:
    batches = seen(session, "contiguous_parts_of_unequal_length")["batches"]
    assert [words.split()[0] for words in batches.values()] == ["3", "3", "3", "1"]


def test_a_window_that_is_shifted_by_one_micro_batch(session: Session) -> None:
    assert seen(session, "skips_a_micro_batch_alone")["batch"] == {"rank 0": 1, "rank 1": 2}
