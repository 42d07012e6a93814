"""What recording costs: of a step of about 15 ms, and of one event."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from harness._bench.row import Row
from harness.plan import Expect, Plan, write_plan
from harness.rank.recorder import Recorder
from harness.wire import RUN_DIR_ENV, Kind, output_path

SCRIPT = Path(__file__).with_name("step_of_15_ms.py")
PAIRS = 5
NUM_EVENTS = 50_000
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]


def measure() -> Iterator[Row]:
    pairs_ms = [(_step_ms(recorded=False), _step_ms(recorded=True)) for _ in range(PAIRS)]
    bare_ms = statistics.median(bare for bare, _ in pairs_ms)
    yield Row(
        what="recording: what it adds to a step, in percent",
        measured=100 * statistics.median(recorded / bare - 1 for bare, recorded in pairs_ms),
        budget=3.0,
        detail=f"a step of {bare_ms:.1f} ms of CPU time, 264k parameters; median of {PAIRS} pairs",
    )
    yield Row(
        what="recording: microseconds an event",
        measured=_event_us(),
        budget=10.0,
        detail=f"CPU time, {NUM_EVENTS} collective events to a file",
    )


def _step_ms(*, recorded: bool) -> float:
    """Median CPU time of an update, in a process of its own, as the script itself says."""
    with tempfile.TemporaryDirectory(prefix="chaos-bench-") as name:
        run_dir = Path(name)
        write_plan(Plan(name="step", script=str(SCRIPT), ranks=1, expect=Expect(outcome="clean")), run_dir)
        command = [*TORCHRUN, "--module", "harness.rank.main", str(SCRIPT)] if recorded else [*TORCHRUN, str(SCRIPT)]
        env = os.environ | {RUN_DIR_ENV: name, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        text = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
        if recorded:
            text = output_path(run_dir, 0, 0, "stdout").read_text()
    return float(text.splitlines()[-1])


def _event_us() -> float:
    with tempfile.TemporaryDirectory(prefix="chaos-bench-") as name:
        recorder = Recorder(Path(name, "events.jsonl"))
        fields = {"group": "0", "op": "allreduce", "reduce_op": "SUM", "numel": 4482, "dtype": "float32", "root": None}
        started = time.process_time_ns()
        for call in range(NUM_EVENTS):
            recorder.emit(Kind.COLLECTIVE, call=call, site="/home/someone/project/train.py:112", **fields)
        return (time.process_time_ns() - started) / 1e3 / NUM_EVENTS
