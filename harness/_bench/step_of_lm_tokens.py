"""What recording adds to an update of lm_tokens, of four micro-batches: in one process, every other one is recorded.

    WORLD_SIZE=1 ... python -m harness._bench.step_of_lm_tokens RUN_DIR

Prints a JSON list of pairs of CPU times in ms, [bare, recorded]; see step_of_15_ms.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from harness._bench.step_of_15_ms import Recording
from harness.rank.main import _install
from harness.rank.recorder import Recorder

NUM_PAIRS, NUM_WARM_UP = 300, 20
BATCH_SIZE = 12  # about 20 ms on a quiet core
LM_TOKENS = Path(__file__).parents[2] / "workloads" / "lm_tokens.py"


class Turns:
    """Switches recording at the end of each update: of two that follow each other one is recorded, by turns the first.

    Attributes:
        times_ms: of each update, with whether it was recorded.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._is_on = True
        self._started_ns = 0
        self.times_ms: list[tuple[bool, float]] = []
        schedulers: Any = CosineAnnealingLR
        step = schedulers.step

        def last_of_an_update(scheduler: Any, *args: Any) -> None:
            step(scheduler, *args)
            if self._started_ns:
                self.times_ms.append((self._is_on, (time.process_time_ns() - self._started_ns) / 1e6))
            self._is_on = len(self.times_ms) % 4 in (0, 3)
            self._recording.switch(dist.group.WORLD, on=self._is_on)
            self._started_ns = time.process_time_ns()

        schedulers.step = last_of_an_update


def main(run_dir: Path) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    turns = Turns(Recording(lambda: _install(Recorder(run_dir / "events.jsonl"), run_dir, 0, 0)))
    steps = 2 * (NUM_WARM_UP + NUM_PAIRS) + 3  # the first begins none, the last saves
    checkpoints = run_dir / "checkpoints"
    sys.argv = ["lm_tokens", "--steps", f"{steps}", "--save-every", f"{steps}", "--checkpoint-dir", str(checkpoints)]
    sys.argv += ["--batch-size", f"{BATCH_SIZE}"]
    runpy.run_path(str(LM_TOKENS), run_name="__main__")
    record = (run_dir / "events.jsonl").read_bytes()
    num_updates, num_batches = (record.count(b'"kind":"%b"' % kind) for kind in (b"update", b"batch"))
    if not num_updates >= len(turns.times_ms) // 2 or not num_batches > 3 * num_updates:  # epochs end with fewer
        raise RuntimeError(f"{num_updates} updates and {num_batches} batches are on record of {steps} updates")
    found = turns.times_ms[2 * NUM_WARM_UP : 2 * (NUM_WARM_UP + NUM_PAIRS)]
    pairs = [dict(found[i : i + 2]) for i in range(0, len(found), 2)]
    print(json.dumps([[pair[False], pair[True]] for pair in pairs]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
