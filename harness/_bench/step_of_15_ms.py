"""What recording adds to an update of about 15 ms: the same model in the same process, without recording and with it.

    RANK=0 WORLD_SIZE=1 ... python -m harness._bench.step_of_15_ms RUN_DIR

Prints a JSON list of two times in ms. Two processes would not do: how their memory happens to lie makes more of a
difference than recording. CPU time, and of many updates the tenth fastest in a hundred, since others use the machine.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from harness.rank.main import _install
from harness.rank.recorder import Recorder

BATCH_SIZE, NUM_UPDATES, NUM_WARM_UP = 64, 120, 20
NUM_SAMPLES = BATCH_SIZE * NUM_UPDATES


def main(run_dir: Path) -> None:
    torch.set_num_threads(1)
    dataset = TensorDataset(torch.randn(NUM_SAMPLES, 1, 16, 16), torch.randint(0, 10, (NUM_SAMPLES,)))
    model = nn.Sequential(  # (B, 1, 16, 16) -> (B, 32, 8, 8) -> (B, 64, 4, 4) -> (B, 10)
        *(nn.Conv2d(1, 32, kernel_size=3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, kernel_size=3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1024, 10)),
    )
    optimizer = torch.optim.AdamW(model.parameters())
    bare_ms = update_ms(dataset, model, optimizer)
    _install(Recorder(run_dir / "events.jsonl"), run_dir, 0, 0)
    print(json.dumps([bare_ms, update_ms(dataset, model, optimizer)]), flush=True)


def update_ms(dataset: TensorDataset, model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    dist.init_process_group("gloo")
    ddp = DistributedDataParallel(model)
    times_ns = []
    started_ns = time.process_time_ns()
    for x, y in DataLoader(dataset, BATCH_SIZE):
        loss = nn.functional.cross_entropy(ddp(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        times_ns.append(time.process_time_ns() - started_ns)
        started_ns = time.process_time_ns()
    del ddp
    dist.destroy_process_group()
    return statistics.quantiles(times_ns[NUM_WARM_UP:], n=10)[0] / 1e6


if __name__ == "__main__":
    main(Path(sys.argv[1]))
