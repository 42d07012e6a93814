"""A kill, the restart, the resume and all checks: warm against the real torchrun."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from harness._bench.row import Row
from harness.plan import Plan, make_plan
from harness.run import Session
from harness.scenario import load_scenario

WARM_RUNS, COLD_RUNS = 9, 3
SCENARIO = """
workload = "ddp_mlp"
max_restarts = 1

[[fault]]
kind = "kill"
rank = 1
at = { step = 12, phase = "backward" }

[expect]
outcome = "recovers"
resume_step = 10
"""


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="chaos-bench-") as name:
        store = Path(name)
        file = store / "kill.toml"
        file.write_text(SCENARIO)
        plan = make_plan(load_scenario(file), device="cpu")
        with Session(store, store / "runs") as session:
            cold_s = _median_s(session, replace(plan, launcher="torchrun"), COLD_RUNS)
            warm_s = _median_s(session, plan, WARM_RUNS)
    yield Row(
        what="kill, restart, resume, all checks, 2 ranks: warm / cold",
        measured=warm_s / cold_s,
        budget=1 / 8,
        detail=f"{warm_s:.2f} s / {cold_s:.2f} s, medians of {WARM_RUNS} and {COLD_RUNS} runs",
    )


def _median_s(session: Session, plan: Plan, num_runs: int) -> float:
    """Wall time of a run and its judgement; the first run, which also makes the baseline, is not counted."""
    durations_s = []
    for _ in range(num_runs + 1):
        started = time.monotonic()
        judgement = session.run(plan).judgement
        durations_s.append(time.monotonic() - started)
        if judgement.outcome != "passed":
            raise RuntimeError(f"{plan.launcher}: a run that did not pass cannot be timed: {judgement.headline}")
    return statistics.median(durations_s[1:])
