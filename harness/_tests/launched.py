"""Run a few lines of training script as real ranks, and look at what they recorded."""

from __future__ import annotations

import itertools
import json
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.faults.base import Fault
from harness.history import History, load_history
from harness.launch import LAUNCHERS, Launcher
from harness.plan import Expect, Plan, write_plan
from harness.wire import output_path

HEADER = """
import json, os, sys
import torch, torch.distributed as dist
import torch.distributed.nn
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
def show(**values):
    print(json.dumps(values), flush=True)
"""

# Of a script with a model and an optimizer, whose first argument is a directory; a save replaces what is at ``path``.
RESUME = """
path = os.path.join(sys.argv[1], "last.pt")
os.makedirs(sys.argv[1], exist_ok=True)
done = 0
if os.path.exists(path):
    saved = torch.load(path, weights_only=True)
    model.load_state_dict(saved["model"]); optimizer.load_state_dict(saved["optimizer"]); done = saved["done"]
"""
SAVE = """
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "done": done}
        torch.save(state, path + ".new"); os.replace(path + ".new", path)
"""

Run = Callable[..., History]


def make_run(launcher: Launcher, tmp_path: Path) -> Run:
    """A function that runs a script's text as ranks and returns the history; its keywords are those of Plan."""
    numbers = itertools.count()

    def run(text: str, *faults: Fault, ranks: int = 2, env: dict[str, str] | None = None, **fields: Any) -> History:
        run_dir = tmp_path / f"run-{next(numbers)}"
        run_dir.mkdir()
        script = run_dir / "script.py"
        script.write_text(HEADER + textwrap.dedent(text))
        fields = {"deadline_s": 30.0, "collective_timeout_s": 3.0, "expect": Expect(outcome="clean")} | fields
        fields = {"script": str(script), "name": run_dir.name} | fields
        plan = Plan(ranks=ranks, faults=faults, env=env or {}, **fields)
        write_plan(plan, run_dir)
        launcher.launch(plan, run_dir, {"CUDA_VISIBLE_DEVICES": ""})
        return load_history(run_dir)

    return run


def shown(tmp_path: Path, history: History, rank: int, restart: int = 0) -> dict[str, Any]:
    """What the script passed to ``show``, all of it together."""
    lines = output_path(tmp_path / history.plan.name, rank, restart, "stdout").read_text().splitlines()
    return {k: v for line in lines if line.startswith("{") for k, v in json.loads(line).items()}


@pytest.fixture(scope="session")
def warm_launcher() -> Iterator[Launcher]:
    with LAUNCHERS["warm"]() as launcher:
        yield launcher


@pytest.fixture
def run(warm_launcher: Launcher, tmp_path: Path) -> Run:
    return make_run(warm_launcher, tmp_path)
