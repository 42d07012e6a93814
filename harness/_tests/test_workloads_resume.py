"""Every workload stopped anywhere ends as if it had not been: the same bytes in every part of its checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from harness._tests.launched import Run
from harness._tests.workload_runs import WORKLOADS, Changes, content, run_workload

# Updates of an epoch with two ranks; those of mixed_precision depend on what it skips.
EPOCHS = {
    "ddp_mlp": 6,
    "lm_tokens": 9,
    "mixed_precision": 5,
    "batch_norm": 6,
    "sharded_evaluation": 6,
    "sqlite_metrics": 6,
}
LAST = 14  # in the second or third epoch


def test_every_workload_is_tried_but_for_the_one_that_reads_a_data_set() -> None:
    assert {path.stem for path in WORKLOADS.glob("*.py")} - {"__init__", "ddp_digits"} == EPOCHS.keys()


def differing(run: Run, tmp_path: Path, name: str, stops: Sequence[int], changes: Changes = ()) -> list[str]:
    """Places of the last checkpoint that are not as in one run, when it is stopped after each of ``stops``."""

    def ran_to(steps: int, checkpoints: Path | None) -> Path:
        # Each update is saved, so that a stop adds no save and no evaluation.
        args = ("--steps", str(steps), "--save-every", "1")
        return run_workload(run, tmp_path, name, *args, changes=changes, checkpoints=checkpoints).checkpoints

    stopped = None
    for steps in stops:
        stopped = ran_to(steps, stopped)
    expected, seen = (content(ran_to(LAST, checkpoints) / f"step-{LAST}") for checkpoints in (None, stopped))
    assert seen.keys() == expected.keys()
    return [place for place in expected if seen[place] != expected[place]]


@pytest.mark.parametrize("name", EPOCHS)
def test_stopped_after_an_epoch_and_within_one_it_ends_with_the_same_bytes(run: Run, tmp_path: Path, name: str) -> None:
    assert differing(run, tmp_path, name, [EPOCHS[name], EPOCHS[name] + 2]) == []


def without(name: str, part: str, line: str, instead: str = "pass", also: Changes = ()) -> object:
    return pytest.param(name, [(f"\n    {line}", f"\n    {instead}"), *also], id=f"{name}: {part}")


FALLING = ("accuracy, f1 = evaluate()", "accuracy, f1 = 1.0, 1 / step")  # so that the best one is before the stop


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        without("lm_tokens", "random state", 'set_rng_state(loaded.own["rng"])'),
        without("lm_tokens", "scheduler", 'scheduler.load_state_dict(loaded.shared["scheduler"])'),
        without("lm_tokens", "position", "epoch, position = loaded", "epoch, _ = loaded"),
        without("lm_tokens", "epoch", "epoch, position = loaded", "_, position = loaded"),
        without("mixed_precision", "scaler", 'scaler.load_state_dict(loaded.shared["scaler"])'),
        without("mixed_precision", "moments", 'optimizer.load_state_dict(loaded.shared["optimizer"])'),
        without("mixed_precision", "skipped updates", 'num_skipped = loaded.shared["progress"]["skipped"]'),
        without("batch_norm", "weights and statistics", 'model.load_state_dict(loaded.shared["model"])'),
        without("sharded_evaluation", "best metric", 'best_f1 = loaded.shared["progress"]["best_f1"]', also=[FALLING]),
    ],
)
def test_a_part_of_the_state_that_is_not_restored_is_seen(
    run: Run, tmp_path: Path, name: str, changes: Changes
) -> None:
    assert differing(run, tmp_path, name, [EPOCHS[name] + 2], changes) != []
