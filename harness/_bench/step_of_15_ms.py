"""What recording adds to an update of about 15 ms: of one model in one process, every other update is recorded.

    WORLD_SIZE=1 ... python -m harness._bench.step_of_15_ms RUN_DIR

Prints a JSON list of pairs of CPU times in ms, [bare, recorded]. The two updates of a pair follow each other at once,
so that both meet the same neighbours on the machine, and use the same memory: how it happens to lie makes more of a
difference than recording does. Every other pair begins with the recorded one.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn
import torch.nn.modules.module as modules
import torch.optim.optimizer as optimizers
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from harness.rank.main import _install
from harness.rank.recorder import Recorder

BATCH_SIZE, NUM_PAIRS, NUM_WARM_UP = 80, 400, 20  # about 15 ms on a quiet core
# What makes a loader, and a pass over one: once for many updates, those that are recorded among them.
LASTING = ("__init__", "__iter__")


class Recording:
    """What installing the rank side replaced, to be taken out and put back between two updates.

    Args:
        install: does it.
    """

    def __init__(self, install: Callable[[], object]) -> None:
        of_torch = [module for name, module in sys.modules.items() if name.partition(".")[0] == "torch"]
        places = [(place, dict(vars(place))) for place in (*of_torch, DataLoader, _BaseDataLoaderIter)]
        self._hooks: list[dict[int, Any]] = [
            modules._global_forward_pre_hooks,
            optimizers._global_optimizer_pre_hooks,
            optimizers._global_optimizer_post_hooks,
        ]
        install()
        self._recorded_group = dist.distributed_c10d.ProcessGroup
        self._hooked = [dict(hooks) for hooks in self._hooks]
        self._replaced = [
            (place, name, stock, vars(place)[name])
            for place, before in places
            for name, stock in before.items()
            if callable(stock) and vars(place).get(name, stock) is not stock and name not in LASTING
        ]

    def switch(self, group: Any, *, on: bool) -> None:
        """Record what follows, or leave it as torch has it; ``group`` was made while recording."""
        for place, name, stock, recorded in self._replaced:
            setattr(place, name, recorded if on else stock)
        for hooks, hooked in zip(self._hooks, self._hooked, strict=True):
            hooks.clear()
            hooks.update(hooked if on else {})
        # Without the methods that record, C++ answers for the same group.
        group.__class__ = self._recorded_group if on else Unrecorded


class Unrecorded(dist.ProcessGroup):
    """A stock process group that may take the place of a recording one: a Python class as well."""


def main(run_dir: Path) -> None:
    torch.set_num_threads(1)
    record = run_dir / "events.jsonl"
    recording = Recording(lambda: _install(Recorder(record), run_dir, 0, 0))
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    model = nn.Sequential(  # (B, 1, 16, 16) -> (B, 32, 8, 8) -> (B, 64, 4, 4) -> (B, 10)
        *(nn.Conv2d(1, 32, kernel_size=3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, kernel_size=3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1024, 10)),
    )
    ddp = DistributedDataParallel(model)
    times = update_times_ms(ddp, torch.optim.AdamW(model.parameters()))
    pairs = []
    for number in range(NUM_WARM_UP + NUM_PAIRS):
        pair = {}
        for on in (False, True) if number % 2 else (True, False):
            recording.switch(ddp.process_group, on=on)
            pair[on] = next(times)
        pairs.append([pair[False], pair[True]])
    recording.switch(ddp.process_group, on=True)
    del ddp
    dist.destroy_process_group()
    if (num_recorded := record.read_bytes().count(b'"kind":"update"')) != len(pairs):
        raise RuntimeError(f"{num_recorded} updates are on record, and not the {len(pairs)} that were to be recorded")
    print(json.dumps(pairs[NUM_WARM_UP:]), flush=True)


def update_times_ms(ddp: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[float]:
    num_samples = BATCH_SIZE * 2 * (NUM_WARM_UP + NUM_PAIRS)
    dataset = TensorDataset(torch.randn(num_samples, 1, 16, 16), torch.randint(0, 10, (num_samples,)))
    batches = iter(DataLoader(dataset, BATCH_SIZE))
    while True:
        started_ns = time.process_time_ns()
        x, y = next(batches)
        loss = nn.functional.cross_entropy(ddp(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield (time.process_time_ns() - started_ns) / 1e6


if __name__ == "__main__":
    main(Path(sys.argv[1]))
