"""Does chaos find the planted bugs? Each is put under faults that nobody chose for it.

Of a planted scenario only the job is taken: the faults that were made to show its bug are left out, and others are
drawn until one of the plans fails, or finds the guarantee that it breaks unknown where that is what the bug does. The
healthy controls that end well by themselves go the same way, and must pass.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from harness.chaos.job import JobSource, job_of
from harness.chaos.night import JOBS_A_CORE
from harness.chaos.trial import Trial, begin, try_number
from harness.launch.nursery import Nursery
from harness.mutants import Row
from harness.scenario import load_scenario

SEED = 1
MAX_RUNS = 40  # plans until a bug counts as missed
NUM_CONTROL_RUNS = 3  # plans that each healthy control must pass


def try_planted(
    files: Sequence[Path], on_row: Callable[[Row], None], jobs: int | None = None, seed: int = SEED
) -> list[Row]:
    """Draw plans for the job of each file; ``on_row`` hears of each, in the order of the files.

    Args:
        jobs: how many runs at a time; None: as many as in a night.
    """
    rows = []
    context = get_context("spawn")  # a launcher's parent process must not share what this one has open
    num_workers = jobs or JOBS_A_CORE * (os.cpu_count() or 1)
    with (
        tempfile.TemporaryDirectory(prefix="chaos-planted-") as store,
        Nursery() as nursery,
        ProcessPoolExecutor(num_workers, context, begin, (store, store, context.Event(), nursery.channel)) as pool,
    ):
        for row in filter(None, pool.map(partial(_try, seed), files)):
            rows.append(row)
            on_row(row)
    return rows


def _try(seed: int, file: Path) -> Row | None:
    started_s = time.monotonic()
    scenario = load_scenario(file)
    if scenario.expect.outcome not in ("detected", "clean", "recovers"):
        return None
    source = JobSource(only=job_of(scenario))
    expected = tuple(broken.guarantee for broken in scenario.expect.broken)
    found: list[Trial] = []
    is_caught = False
    number = 0
    while number < (MAX_RUNS if expected else NUM_CONTROL_RUNS) and not is_caught:
        trial = try_number(seed, number, False, source)
        number += 1
        found += [trial] if trial.outcome != "passed" else []
        is_caught = trial.outcome == "failed" or bool({*trial.blamed} & {*expected})
    said = "; ".join(dict.fromkeys(f"plan {trial.number}: {trial.headline}" for trial in found))
    return Row(
        name=file.stem,
        expected=expected,
        passed=is_caught if expected else not found,
        found=f"{number} plans: {said or 'all passed'}",
        duration_s=time.monotonic() - started_s,
        num_runs=number,
    )
