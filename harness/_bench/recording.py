"""What recording costs: of a step of about 15 ms, and of one event."""

from __future__ import annotations

import json
import math
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
from harness.wire import Kind

PROCESSES = 3
NUM_EVENTS = 50_000


def measure() -> Iterator[Row]:
    for module, what in {"step_of_15_ms": "a step", "step_of_lm_tokens": "an update of lm_tokens"}.items():
        pairs_ms = [pair for _ in range(PROCESSES) for pair in _pairs_ms(module)]
        added_us = [1e3 * (recorded - bare) for bare, recorded in pairs_ms]
        added, bare_ms = statistics.median(added_us), statistics.median(bare for bare, _ in pairs_ms)
        yield Row(
            what=f"recording: what it adds to {what}, in percent",
            measured=added / bare_ms / 10,
            budget=3.0,
            detail=f"{added:.0f} +- {_error(added_us):.0f} us to {bare_ms:.1f} ms of CPU time, {len(added_us)} pairs",
        )
    yield Row(
        what="recording: microseconds an event",
        measured=_event_us(),
        budget=10.0,
        detail=f"CPU time, {NUM_EVENTS} collective events to a file",
    )


def _error(values: list[float]) -> float:
    """The standard error of their median, as if they were distributed normally but for outliers."""
    low, _, high = statistics.quantiles(values, n=4)
    return 1.253 * (high - low) / 1.349 / math.sqrt(len(values))


def _pairs_ms(module: str) -> list[tuple[float, float]]:
    """CPU times of an update without recording and of one with it, measured in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="chaos-bench-") as run_dir:
        write_plan(Plan(name="step", script="", ranks=1, expect=Expect(outcome="clean")), Path(run_dir))
        ended = subprocess.run(
            [sys.executable, "-m", f"harness._bench.{module}", run_dir],
            env=os.environ | {"WORLD_SIZE": "1", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    if ended.returncode != 0:
        raise RuntimeError(f"the step to be measured failed:\n{ended.stderr}")
    return [(bare_ms, recorded_ms) for bare_ms, recorded_ms in json.loads(ended.stdout.splitlines()[-1])]


def _event_us() -> float:
    with tempfile.TemporaryDirectory(prefix="chaos-bench-") as name:
        recorder = Recorder(Path(name, "events.jsonl"))
        fields = {"group": "0", "op": "allreduce", "reduce_op": "SUM", "numel": 4482, "dtype": "float32", "root": None}
        started_ns = time.process_time_ns()
        for call in range(NUM_EVENTS):
            recorder.emit(Kind.COLLECTIVE, call=call, site="/home/someone/project/train.py:112", **fields)
        return (time.process_time_ns() - started_ns) / 1e3 / NUM_EVENTS
