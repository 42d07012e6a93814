"""What recording adds to an update of about 15 ms: updates with and without it, by turns, of one model in one process.

    RANK=0 WORLD_SIZE=1 ... python -m harness._bench.step_of_15_ms RUN_DIR

Prints a JSON list of two times in ms, without and with. Two processes, or two models in one, would not do: how their
memory happens to lie makes more of a difference than recording. So all is installed, and what it does is switched off
and on again every few updates; only the calls of the hooks themselves, some microseconds, are in both. CPU time, and of
many updates the third fastest in ten, since others use the machine.
"""

from __future__ import annotations

import functools
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from harness.rank.collectives import _Call
from harness.rank.main import _install
from harness.rank.recorder import Recorder
from harness.rank.steps import Steps

BATCH_SIZE, NUM_UPDATES, NUM_WARM_UP, NUM_BY_TURNS = 64, 320, 20, 5
NUM_SAMPLES = BATCH_SIZE * NUM_UPDATES
SWITCHED = (
    *((Steps, name) for name in ("enter", "batch_loaded", "_before_forward", "_before_step", "_after_step")),
    (_Call, "record"),
    (Recorder, "emit"),
)
is_recording = True


def main(run_dir: Path) -> None:
    torch.set_num_threads(1)
    for owner, name in SWITCHED:
        setattr(owner, name, _switched(getattr(owner, name)))
    _install(Recorder(run_dir / "events.jsonl"), run_dir, 0, 0)
    print(json.dumps(update_ms()), flush=True)


def _switched(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def switched(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs) if is_recording else None

    return switched


def update_ms() -> tuple[float, float]:
    """CPU time of an update without and with recording."""
    global is_recording
    dataset = TensorDataset(torch.randn(NUM_SAMPLES, 1, 16, 16), torch.randint(0, 10, (NUM_SAMPLES,)))
    dist.init_process_group("gloo")
    model = nn.Sequential(  # (B, 1, 16, 16) -> (B, 32, 8, 8) -> (B, 64, 4, 4) -> (B, 10)
        *(nn.Conv2d(1, 32, kernel_size=3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, kernel_size=3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1024, 10)),
    )
    optimizer = torch.optim.AdamW(model.parameters())
    ddp = DistributedDataParallel(model)
    times_ns: dict[bool, list[int]] = {False: [], True: []}
    started_ns = time.process_time_ns()
    for update, (x, y) in enumerate(DataLoader(dataset, BATCH_SIZE)):
        loss = nn.functional.cross_entropy(ddp(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update >= NUM_WARM_UP:
            times_ns[is_recording].append(time.process_time_ns() - started_ns)
            is_recording = update // NUM_BY_TURNS % 2 == 0
        started_ns = time.process_time_ns()
    del ddp
    dist.destroy_process_group()
    bare, recorded = (statistics.quantiles(times_ns[is_on], n=10)[2] / 1e6 for is_on in (False, True))
    return bare, recorded


if __name__ == "__main__":
    main(Path(sys.argv[1]))
