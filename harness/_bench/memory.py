"""What a warm rank needs of memory for itself, beside what it shares with the parent it was forked from."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness._bench.row import Row
from harness.launch.warm import WarmLauncher
from harness.plan import Expect, Plan, write_plan
from harness.wire import output_path

SCRIPT = Path(__file__).with_name("ddp_mlp_and_its_memory.py")
ARGS = ("--steps", "20", "--checkpoint-dir", "{checkpoints}")


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="chaos-bench-") as name, WarmLauncher() as launcher:
        run_dir = Path(name)
        plan = Plan(name="memory", script=str(SCRIPT), args=ARGS, ranks=2, expect=Expect(outcome="clean"))
        write_plan(plan, run_dir)
        launcher.launch(plan, run_dir, {"CUDA_VISIBLE_DEVICES": ""})
        texts = [output_path(run_dir, rank, 0, "stdout").read_text() for rank in range(plan.ranks)]
    private_mb = max(int(text.rpartition("private bytes: ")[2]) for text in texts) / 1e6
    yield Row(
        what="private memory of a warm rank after 20 updates of ddp_mlp: MB",
        measured=private_mb,
        budget=40.0,
        detail="clean and dirty pages that no other process has; the larger of 2 ranks",
    )
