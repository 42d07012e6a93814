"""What recording costs: of a step of about 15 ms, and of one event."""

from __future__ import annotations

import json
import os
import socket
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
from harness.wire import Kind

PROCESSES = 5
NUM_EVENTS = 50_000


def measure() -> Iterator[Row]:
    pairs_ms = [_step_ms() for _ in range(PROCESSES)]
    added_ms = statistics.median(recorded - bare for bare, recorded in pairs_ms)
    bare_ms = statistics.median(bare for bare, _ in pairs_ms)
    yield Row(
        what="recording: what it adds to a step, in percent",
        measured=100 * added_ms / bare_ms,
        budget=3.0,
        detail=f"{added_ms:.2f} ms to {bare_ms:.1f} ms of CPU time, a convolutional network, median of {PROCESSES}",
    )
    yield Row(
        what="recording: microseconds an event",
        measured=_event_us(),
        budget=10.0,
        detail=f"CPU time, {NUM_EVENTS} collective events to a file",
    )


def _step_ms() -> tuple[float, float]:
    """CPU time of an update without recording and with it, measured in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="chaos-bench-") as run_dir, socket.create_server(("localhost", 0)) as free:
        write_plan(Plan(name="step", script="", ranks=1, expect=Expect(outcome="clean")), Path(run_dir))
        port = free.getsockname()[1]
        free.close()
        world = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
        ended = subprocess.run(
            [sys.executable, "-m", "harness._bench.step_of_15_ms", run_dir],
            env=os.environ | world | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    if ended.returncode != 0:
        raise RuntimeError(f"the step to be measured failed:\n{ended.stderr}")
    bare_ms, recorded_ms = json.loads(ended.stdout.splitlines()[-1])
    return bare_ms, recorded_ms


def _event_us() -> float:
    with tempfile.TemporaryDirectory(prefix="chaos-bench-") as name:
        recorder = Recorder(Path(name, "events.jsonl"))
        fields = {"group": "0", "op": "allreduce", "reduce_op": "SUM", "numel": 4482, "dtype": "float32", "root": None}
        started_ns = time.process_time_ns()
        for call in range(NUM_EVENTS):
            recorder.emit(Kind.COLLECTIVE, call=call, site="/home/someone/project/train.py:112", **fields)
        return (time.process_time_ns() - started_ns) / 1e3 / NUM_EVENTS
