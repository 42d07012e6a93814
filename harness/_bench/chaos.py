"""Chaos: runs a minute, and how long a failure of three faults takes to become one of a single fault."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness._bench.row import Row
from harness.chaos.finding import pin_down
from harness.chaos.job import JobSource
from harness.chaos.night import Order, run_night
from harness.chaos.trial import open_session, try_scenario
from harness.faults import At
from harness.faults.kill import Kill
from harness.plan import Expect
from harness.scenario import Scenario

SEED = 5
DURATION_S = 180.0  # the start of the workers and the waiting for the last runs are counted
NUM_KILLS = 3


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="chaos-bench-") as name:
        store = Path(name)
        _night(store, 1, duration_s=None, num_runs=60)  # makes the fault-free runs that every night after it finds
        rate, detail = _night(store, 2, duration_s=DURATION_S, num_runs=None)
        yield Row(what="chaos: seconds a two-rank run with a fault", measured=60 / rate, budget=0.6, detail=detail)
        open_session(store, store / "shrinking")
        yield _shrinking(store)


def _night(store: Path, part: int, *, duration_s: float | None, num_runs: int | None) -> tuple[float, str]:
    order = Order(
        seed=SEED,
        num_runs=num_runs,
        duration_s=duration_s,
        store_dir=store,
        runs_dir=store / f"night-{part}",
        out_dir=store / "found",
        source=JobSource(num_ranks=(2,)),
    )
    night = run_night(order, io.StringIO())
    if night.outcome != "passed":
        raise RuntimeError(f"a night that is {night.outcome} cannot be timed: {night.doubts} {night.found}")
    rate = 60 * len(night.trials) / night.duration_s
    return rate, f"{len(night.trials)} runs in {night.duration_s:.0f} s, {order.jobs} at a time: {rate:.0f} a minute"


def _shrinking(store: Path) -> Row:
    """A script that forgets its place in the epoch, killed in three launches, one after the other."""
    kills = [Kill(rank=1, at=At(step=7 + 3 * n, phase="backward", restart=n)) for n in range(NUM_KILLS)]
    scenario = Scenario(
        workload="planted/forgets_the_position",
        max_restarts=NUM_KILLS,
        fault=tuple(kills),
        expect=Expect(outcome="guaranteed"),
    )
    trial = try_scenario(scenario, "three")
    found = pin_down(trial, store / "found", "bench")
    if trial.outcome != "failed" or found.num_faults != 1 or not found.is_reproduced:
        raise RuntimeError(f"it was not made smaller: {trial.headline}, {found}")
    return Row(
        what=f"chaos: s from a failure of {NUM_KILLS} faults to one of a single fault",
        measured=found.fewest_faults_s,
        budget=60.0,
        detail=f"and {found.duration_s:.0f} s, {found.num_runs} runs, until nothing gets smaller or a minute is over",
    )
