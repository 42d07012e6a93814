"""mixed_precision: what is applied, what is skipped, and the scale, on all ranks alike."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DistributedSampler

from harness._tests.launched import Run
from harness._tests.workload_runs import Changes, Ran, names_of, relative_difference, run_workload
from harness.wire import Kind

CLIP_NORM = 0.5
RIGHT = 2e-2  # of float16 against float64
NO_OVERFLOW = ("--scale", "1024", "--dropout", "0")  # it grows to 4096, far below any overflow


def run_amp(run: Run, tmp_path: Path, steps: int, *args: str, changes: Changes = (), fails: bool = False) -> Ran:
    given = ("--steps", str(steps), *args)
    return run_workload(run, tmp_path, "mixed_precision", *given, changes=changes, fails=fails)


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return names_of("mixed_precision", tmp_path_factory.mktemp("names"), "--dropout", "0")


def reference(names: dict[str, Any], ran: Ran, step: int) -> torch.Tensor:
    """The gradient of update ``step``, in the first epoch, not clipped: float64, both ranks' batches together."""
    model = names["model"].double()
    model.load_state_dict(ran.part(step - 1, "model"))
    shards = [[*DistributedSampler(names["dataset"], 2, rank, seed=0)] for rank in range(2)]
    ids = [i for shard in shards for i in shard[8 * (step - 1) : 8 * step]]
    assert ran.sample_ids(0, step) + ran.sample_ids(1, step) == ids
    loss = torch.nn.functional.cross_entropy(model(names["x_NF"][ids].double()), names["y_N"][ids])
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, [*model.parameters()])])


def clipped(gradient: torch.Tensor) -> torch.Tensor:
    return gradient * min(1.0, CLIP_NORM / float(gradient.norm()))


def test_what_is_applied_is_the_unscaled_gradient_clipped(run: Run, tmp_path: Path, names: dict[str, Any]) -> None:
    ran = run_amp(run, tmp_path, 3, "--save-every", "1", *NO_OVERFLOW)
    for step in (2, 3):
        whole = reference(names, ran, step)
        assert whole.norm() > 1.2 * CLIP_NORM  # or clipping would do nothing
        assert relative_difference(ran.gradient(step), clipped(whole)) < RIGHT
        assert relative_difference(ran.gradient(step), whole) > RIGHT


UNSCALE = "        scaler.unscale_(optimizer)"
CLIP = "        nn.utils.clip_grad_norm_("


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param([(UNSCALE, "        0")], id="clipped while it is scaled"),
        pytest.param([(CLIP, "        (")], id="not clipped"),
    ],
)
def test_a_gradient_that_is_clipped_at_the_wrong_time_is_seen(
    run: Run, tmp_path: Path, names: dict[str, Any], changes: Changes
) -> None:
    ran = run_amp(run, tmp_path, 2, "--save-every", "1", *NO_OVERFLOW, changes=changes)
    assert relative_difference(ran.gradient(2), clipped(reference(names, ran, 2))) > RIGHT


BACKWARD = "scaler.scale(loss).backward()"
HERE = "rank == 1 and (epoch, position) == (1, 8)"  # the second batch of the second epoch: after update 7
OVERFLOWS = (BACKWARD, f"scaler.scale(loss * (float('inf') if {HERE} else 1.0)).backward()")
OVERFLOWS_UNREDUCED = (
    BACKWARD,
    f"{BACKWARD}\n        [p.grad.fill_(float('inf')) for p in model.parameters() if {HERE}]",
)
ALL_PRINT = ('if rank == 0:\n    print(f"done:', 'if True:\n    print(f"scale {scaler.get_scale()}; done:')


def test_an_overflow_on_one_rank_makes_all_ranks_skip_and_halve_the_scale(run: Run, tmp_path: Path) -> None:
    plain = run_amp(run, tmp_path, 12, *NO_OVERFLOW, changes=[ALL_PRINT])
    ran = run_amp(run, tmp_path, 12, *NO_OVERFLOW, changes=[ALL_PRINT, OVERFLOWS])
    for rank in range(2):
        assert "scale 4096.0; done: 12 steps, 0 updates skipped" in plain.printed_by(rank)  # it grew at 6 and 12
        assert "scale 1024.0; done: 12 steps, 1 updates skipped" in ran.printed_by(rank)  # halved, it waits for 6 more
    mine, other = ([(e.step, e.data["params"]) for e in ran.history.of(Kind.UPDATE, rank=rank)] for rank in range(2))
    assert mine == other
    assert [step for step, _ in mine] == [*range(1, 13)]


def test_an_overflow_that_one_rank_keeps_to_itself_is_seen(run: Run, tmp_path: Path) -> None:
    args = ("--save-every", "100", *NO_OVERFLOW)
    ran = run_amp(run, tmp_path, 9, *args, changes=[OVERFLOWS_UNREDUCED], fails=True)
    assert [len(ran.history.of(Kind.UPDATE, rank=rank)) for rank in range(2)] == [9, 8]


def test_a_short_run_sees_the_scale_shrink_and_grow(run: Run, tmp_path: Path) -> None:
    ran = run_amp(run, tmp_path, 20, changes=[ALL_PRINT])
    ends = [re.search(r"scale ([\d.]+); done: 20 steps, (\d+) updates skipped", ran.printed_by(r)) for r in range(2)]
    assert ends[0] is not None
    assert ends[1] is not None
    assert ends[0].groups() == ends[1].groups()
    assert ran.part(15, "progress")["skipped"] > ran.part(10, "progress")["skipped"]
    assert ran.part(20, "scaler")["scale"] > ran.part(15, "scaler")["scale"]


def test_gradients_that_are_not_finite_at_any_scale_end_the_job(run: Run, tmp_path: Path) -> None:
    changes = [("scaler.scale(loss).backward()", "scaler.scale(loss * float('nan')).backward()")]
    ran = run_amp(run, tmp_path, 3, "--scale", "4", changes=changes, fails=True)
    assert "after update 0 gradients are not finite at any scale; lower --lr" in ran.printed
