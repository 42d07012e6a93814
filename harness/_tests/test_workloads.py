"""The workloads run by the real torchrun, as a user would, without the harness: they train, stop, and go on exactly."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from harness._tests.workload_runs import WORKLOADS, content

LAUNCH_TIMEOUT_S = 60.0


def torchrun(script: str, checkpoints: Path, *args: str) -> str:
    """Run ``script`` on two CPU ranks; returns what it printed, stdout and stderr together."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [str(WORKLOADS / script), "--checkpoint-dir", str(checkpoints), *args]
    ended = subprocess.run(
        command,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LAUNCH_TIMEOUT_S,
        check=False,
    )
    return f"{ended.stdout}\nexit code {ended.returncode}"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoints of 20 uninterrupted updates of ddp_mlp."""
    checkpoints = tmp_path_factory.mktemp("whole")
    text = torchrun("ddp_mlp.py", checkpoints, "--steps", "20", "--save-every", "5")
    assert "exit code 0" in text, text
    return checkpoints


def test_ddp_mlp_stopped_within_and_after_an_epoch_ends_with_the_same_bytes_as_uninterrupted(
    whole: Path, tmp_path: Path
) -> None:
    # 6 updates an epoch: 10 is in the middle of the second, 18 after the last batch of the third.
    texts = [torchrun("ddp_mlp.py", tmp_path, "--steps", steps) for steps in ("10", "18", "20")]

    assert all("exit code 0" in text for text in texts), texts
    expected, seen = content(whole / "step-20"), content(tmp_path / "step-20")
    assert seen.keys() == expected.keys()
    assert [place for place in expected if seen[place] != expected[place]] == []
    parts = {"rank-0.rng.torch", "rank-1.sampler.position", "optimizer.state.0.exp_avg", "scheduler.last_epoch"}
    assert parts <= seen.keys()


def test_ddp_mlp_trains_and_gives_each_rank_its_own_dropout(whole: Path) -> None:
    earlier, later = content(whole / "step-15"), content(whole / "step-20")
    assert earlier["model.0.weight"] != later["model.0.weight"]
    assert later["rank-0.rng.torch"] != later["rank-1.rng.torch"]


def test_ddp_mlp_with_another_seed_refuses_the_checkpoints_of_the_first_and_leaves_them_alone(whole: Path) -> None:
    before = content(whole / "step-20")

    text = torchrun("ddp_mlp.py", whole, "--steps", "21", "--seed", "7")

    assert "exit code 0" not in text
    assert "seed = 0" in text
    assert not (whole / "step-21").exists()
    assert content(whole / "step-20") == before


def test_ddp_digits_learns_and_counts_each_held_out_digit_once(tmp_path: Path) -> None:
    pytest.importorskip(
        "sklearn", reason="ddp_digits needs the extra `workloads`: pip install torch-recovery-harness[workloads]"
    )

    text = torchrun("ddp_digits.py", tmp_path)

    assert "exit code 0" in text, text
    losses = [float(loss) for loss in re.findall(r"step \d+: held-out loss ([\d.]+)", text)]
    assert len(losses) == 4
    assert losses == sorted(losses, reverse=True)
    final = re.search(r"done: 120 steps, held-out loss ([\d.]+), accuracy ([\d.]+)", text)
    assert final is not None, text
    assert float(final[2]) > 0.9
    # Two ranks hold 149 and 148 digits: only a share of 297 comes of counting each of them once.
    assert float(final[2]) * 297 == pytest.approx(round(float(final[2]) * 297), abs=0.02)
    assert float(final[1]) == pytest.approx(reference_loss(tmp_path / "step-120"), abs=1e-4)


def reference_loss(checkpoint: Path) -> float:
    """Mean loss on the held-out digits, by one process over all of them at once."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    x_N1HW = torch.tensor(digits.images[:297], dtype=torch.float32).unsqueeze(1) / 16
    model = torch.nn.Sequential(
        *(torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)),
        *(torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)),
        *(torch.nn.Flatten(), torch.nn.Identity(), torch.nn.Linear(64, 10)),
    )
    model.load_state_dict(torch.load(checkpoint / "model.pt", weights_only=True))
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(model(x_N1HW), torch.tensor(digits.target[:297]))
    return loss.item()


@pytest.mark.parametrize("name", ["lm_tokens", "mixed_precision", "batch_norm", "sharded_evaluation", "sqlite_metrics"])
def test_it_runs_by_torchrun_alone(tmp_path: Path, name: str) -> None:
    text = torchrun(f"{name}.py", tmp_path / "checkpoints", "--steps", "2")

    assert "exit code 0" in text, text
    assert "done: 2 steps" in text
    assert (tmp_path / "checkpoints" / "step-2" / "COMPLETE").exists()
