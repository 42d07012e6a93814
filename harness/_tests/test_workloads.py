"""The workloads run by the real torchrun, as a user would, without the harness: they train, stop, and go on exactly.

One torchrun runs them all, one after the other: most of a launch is the import of torch.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from harness._tests.workload_runs import WORKLOADS, content

LAUNCH_TIMEOUT_S = 100.0
SHORT = ("lm_tokens", "mixed_precision", "batch_norm", "sharded_evaluation", "sqlite_metrics")
# The scripts of this command line, one after the other, each in a process and with a store of its own, as the agent
# does it after a restart. How a process of theirs leaves is another matter (scenarios/regression/safe_end.toml).
DRIVER = """
import json, os, runpy, sys, traceback
import torch._dynamo, torch.distributed.nn
from torch.distributed import TCPStore
agent = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
for name, argv in json.loads(sys.argv[1]):
    print(f"<{name}>", flush=True)
    if os.environ["RANK"] == "0":
        store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        agent.set(name, str(store.port))
    os.environ["MASTER_PORT"] = agent.get(name).decode()
    if (pid := os.fork()) == 0:
        sys.argv[:] = argv
        try:
            runpy.run_path(argv[0], run_name="__main__")
            print("ended well", flush=True)
        except BaseException:
            traceback.print_exc()
        os._exit(0)
    os.waitpid(pid, 0)
    print(f"</{name}>", flush=True)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def printed(place: Path) -> dict[str, str]:
    """What rank 0 printed in each run, errors too; each saves in the directory of its name."""
    runs: list[tuple[str, ...]] = [("whole", "ddp_mlp", "whole", "--steps", "20", "--save-every", "5")]
    # 6 updates an epoch: 10 is in the middle of the second, 18 after the last batch of the third.
    runs += [(f"stopped-{steps}", "ddp_mlp", "stopped", "--steps", steps) for steps in ("10", "18", "20")]
    runs += [(name, name, name, "--steps", "2") for name in SHORT]
    runs += [("ddp_digits", "ddp_digits", "ddp_digits")] if has_sklearn() else []
    runs += [("another-seed", "ddp_mlp", "whole", "--steps", "21", "--seed", "7")]
    argvs = [
        (name, [str(WORKLOADS / f"{script}.py"), "--checkpoint-dir", str(place / directory), *args])
        for name, script, directory, *args in runs
    ]
    (place / "driver.py").write_text(DRIVER)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["--redirects", "3", "--log-dir", str(place / "log"), str(place / "driver.py"), json.dumps(argvs)]
    env = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LAUNCH_TIMEOUT_S, check=False)
    (out,) = place.glob("log/*/attempt_0/0/stdout.log")
    text = out.read_text()
    assert ended.returncode == 0, ended.stdout + ended.stderr + text
    errors = out.with_name("stderr.log").read_text()
    return {name: text.partition(f"<{name}>")[2].partition(f"</{name}>")[0] for name, _ in argvs} | {"errors": errors}


def has_sklearn() -> bool:
    return importlib.util.find_spec("sklearn") is not None


def test_ddp_mlp_stopped_within_and_after_an_epoch_ends_with_the_same_bytes_as_uninterrupted(
    printed: dict[str, str], place: Path
) -> None:
    expected, seen = content(place / "whole" / "step-20"), content(place / "stopped" / "step-20")
    assert seen.keys() == expected.keys()
    assert [part for part in expected if seen[part] != expected[part]] == []
    parts = {"rank-0.rng.torch", "rank-1.sampler.position", "optimizer.state.0.exp_avg", "scheduler.last_epoch"}
    assert parts <= seen.keys()
    assert all("ended well" in text for name, text in printed.items() if name.startswith("stopped"))


def test_ddp_mlp_trains_and_gives_each_rank_its_own_dropout(printed: dict[str, str], place: Path) -> None:
    assert "ended well" in printed["whole"]
    earlier, later = content(place / "whole" / "step-15"), content(place / "whole" / "step-20")
    assert earlier["model.0.weight"] != later["model.0.weight"]
    assert later["rank-0.rng.torch"] != later["rank-1.rng.torch"]


def test_ddp_mlp_with_another_seed_refuses_the_checkpoints_of_the_first_and_leaves_them_alone(
    printed: dict[str, str], place: Path
) -> None:
    assert "ended well" not in printed["another-seed"]
    assert "seed = 0" in printed["errors"]
    assert content(place / "whole" / "step-20") == content(place / "stopped" / "step-20")
    assert not (place / "whole" / "step-21").exists()


@pytest.mark.skipif(
    not has_sklearn(), reason="needs the extra `workloads`: pip install torch-recovery-harness[workloads]"
)
def test_ddp_digits_learns_and_counts_each_held_out_digit_once(printed: dict[str, str], place: Path) -> None:
    text = printed["ddp_digits"]
    losses = [float(loss) for loss in re.findall(r"step \d+: held-out loss ([\d.]+)", text)]
    assert len(losses) == 4
    assert losses == sorted(losses, reverse=True)
    final = re.search(r"done: 120 steps, held-out loss ([\d.]+), accuracy ([\d.]+)", text)
    assert final is not None, text
    assert float(final[2]) > 0.9
    # Two ranks hold 149 and 148 digits: only a share of 297 comes of counting each of them once.
    assert float(final[2]) * 297 == pytest.approx(round(float(final[2]) * 297), abs=0.02)
    assert float(final[1]) == pytest.approx(reference_loss(place / "ddp_digits" / "step-120"), abs=1e-4)


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


@pytest.mark.parametrize("name", SHORT)
def test_it_runs_by_torchrun_alone(printed: dict[str, str], place: Path, name: str) -> None:
    assert "done: 2 steps" in printed[name], printed["errors"]
    assert "ended well" in printed[name]
    assert (place / name / "step-2" / "COMPLETE").exists()
