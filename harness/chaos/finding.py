"""What chaos found: a plan that did not pass, the smallest one that fails in the same way, and the file of it."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.chaos.shrink import shrink
from harness.chaos.trial import Trial, has_time, try_scenario
from harness.chaos.write import write_scenario
from harness.errors import HarnessError
from harness.scenario import Scenario, load_scenario

SHRINK_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Found:
    """One way not to pass.

    Attributes:
        trial: the first run that did not pass in this way.
        file: the scenario that was written; None if none could be.
        is_reproduced: that file was run and did not pass in the same way.
        num_faults: of the smallest scenario.
        num_runs: how many it took to make it smaller.
        fewest_faults_s: after so long there was none with fewer faults; the rest went into ranks, updates and places.
        problem: why there is no file, or what it came to instead.
        replayed: the run of that file.
        same_as: the number of the plan whose file stands for this one too, which has the same cause.
        others: the numbers of further plans that failed in this way, or of the same cause.
    """

    trial: Trial
    file: Path | None = None
    is_reproduced: bool = False
    num_faults: int = 0
    num_runs: int = 0
    fewest_faults_s: float = 0.0
    duration_s: float = 0.0
    problem: str = ""
    replayed: Trial | None = None
    same_as: int | None = None
    others: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For report.json."""
        return {
            "way": self.trial.way,
            "number": self.trial.number,
            "headline": self.trial.headline,
            "causes": list(self.trial.causes),
            "run_dir": None if self.trial.run_dir is None else str(self.trial.run_dir),
            "file": None if self.file is None else str(self.file),
            "replay": None if self.file is None else f"pytest {self.file}",
            "is_reproduced": self.is_reproduced,
            "num_faults": self.num_faults,
            "num_shrinking_runs": self.num_runs,
            "duration_s": round(self.duration_s, 3),
            "problem": self.problem,
            "same_as": self.same_as,
            "others": list(self.others),
        }


def pin_down(trial: Trial, out_dir: Path, name: str, within_s: float = SHRINK_S) -> Found:
    """Make the plan smaller, write it, and run the file: in a worker process.

    Args:
        within_s: how long to try smaller ones.
    """
    if trial.scenario is None:
        return Found(trial=trial, problem="no plan could be drawn")
    started_s = time.monotonic()
    num_runs, num_faults, fewest_faults_s = 0, len(trial.scenario.faults), 0.0

    def still_fails(candidate: Scenario) -> bool:
        nonlocal num_runs, num_faults, fewest_faults_s
        num_runs += 1
        tried = try_scenario(candidate, f"{name}-smaller-{num_runs}")
        if tried.run_dir is not None:
            shutil.rmtree(tried.run_dir, ignore_errors=True)
        if tried.way == trial.way and len(candidate.faults) < num_faults:
            num_faults, fewest_faults_s = len(candidate.faults), time.monotonic() - started_s
        return tried.way == trial.way

    smallest = shrink(trial.scenario, still_fails, lambda: has_time(started_s + within_s))
    found = Found(
        trial=trial,
        num_faults=num_faults,
        num_runs=num_runs,
        fewest_faults_s=fewest_faults_s,
        duration_s=time.monotonic() - started_s,
    )
    kinds = ", then ".join(fault.kind for fault in smallest.faults) or "no fault"
    titled = smallest.model_copy(update={"title": f"{kinds}: what the guarantees demand of {smallest.workload}"})
    comment = [f"Found by {name}. It did not pass: {trial.headline}"[:1000]]
    comment += [f"Cause: {cause}"[:500] for cause in trial.causes]
    try:
        path = write_scenario(
            titled, out_dir, f"{name} {'_'.join(fault.kind for fault in smallest.faults) or 'alone'}", comment
        )
        again = try_scenario(load_scenario(path), f"{name}-replayed")
    except HarnessError as error:
        return replace(found, problem=str(error))
    is_reproduced = again.way == trial.way
    problem = "" if is_reproduced else f"run once more it is: {again.outcome}, {again.headline}"
    return replace(found, file=path, is_reproduced=is_reproduced, problem=problem, replayed=again)
