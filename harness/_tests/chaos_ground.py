"""The ground of a job that was never run: what draw and place need of it."""

from __future__ import annotations

from typing import Any

from harness.chaos.job import TRAINING, Ground
from harness.history import Baseline
from harness.scenario import Scenario

EPOCH = 4  # updates
CALLS: dict[str, list[list[Any]]] = {"backward": [["all_reduce", "SUM", size, "float32"] for size in (8, 5)]}


def saved(job: Scenario) -> list[int]:
    """The updates after which one of our workloads saves."""
    return [step for step in range(1, job.steps + 1) if step % job.save_every == 0 or step == job.steps]


def ground(job: Scenario, *, scaler: str = "None", buffers_change: bool = False) -> Ground:
    """Two collectives in each backward, two more in each save; no scaler and no buffers, unless said otherwise."""
    ranks, steps, after = range(job.ranks), range(1, job.steps + 1), saved(job)
    in_save: dict[str, list[list[Any]]] = {"save": [["all_gather", None, 1, "uint8"]] * 2}
    state = {step: {"scaler": scaler, "buffers": f"b{step if buffers_change else 0}"} for step in steps}
    return Ground(
        job=job,
        baseline=Baseline(
            repeatable=True,
            final={},
            updates=dict.fromkeys(ranks, state),
            epochs={step: (step - 1) // EPOCH for step in steps},
            phases={"load": [0], "save": after, "teardown": [job.steps], **{phase: [*steps] for phase in TRAINING}},
            saves=dict.fromkeys(ranks, after),
            sample_ids={rank: {step: [(step - 1) % EPOCH * job.ranks + rank] for step in steps} for rank in ranks},
            collectives={rank: {step: CALLS | (in_save if step in after else {}) for step in steps} for rank in ranks},
        ),
    )


def rich_ground(job: Scenario) -> Ground:
    """One on which every kind of fault can act."""
    return ground(job, scaler="65536.0", buffers_change=True)
