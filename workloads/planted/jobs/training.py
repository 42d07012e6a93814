"""The training that all of these jobs do: a small network on made-up data, its gradients averaged over the ranks.

    torchrun --nproc-per-node 2 workloads/planted/jobs/SAVER.py DIRECTORY

trains to the end, saving on the way, and goes on from whatever is in DIRECTORY. Equal steps give equal bytes, in the
job and in ``crashstates``. Tensor names end in their shape: N samples, B batch, F features.
"""

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # else the first update imports it, all of it under strace
import torch.distributed as dist
import torch.distributed.nn  # before the group is made: imported later, its defaults pin the group and gloo never ends
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

RANKS = 2
SAVED = (2, 4)  # the updates that crashstates saves after; the job saves after all that are a multiple of 2
LAST = 6
BATCH = 4  # samples a rank and update
SAMPLES = 24  # 3 updates an epoch

State = dict[str, Any]


class ResumableSampler(DistributedSampler[int]):
    """Leaves out what was used of an epoch before."""

    position = 0

    def __iter__(self) -> Iterator[int]:
        return itertools.islice(super().__iter__(), self.position, None)


class Training:
    """The state of one rank; every rank holds the same."""

    def __init__(self) -> None:
        torch.set_num_threads(1)  # sums are then added up in one order only
        fixed = torch.Generator().manual_seed(1)
        x_NF = torch.randn(SAMPLES, 8, generator=fixed)
        y_N = (x_NF @ torch.randn(8, generator=fixed) > 0).long()
        dataset = TensorDataset(x_NF, y_N)
        self._sampler = ResumableSampler(dataset, num_replicas=world_size(), rank=rank(), seed=0)
        self._loader = DataLoader(dataset, BATCH, sampler=self._sampler, generator=torch.Generator())
        torch.manual_seed(0)  # the same initial weights on all ranks
        self.model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.step = 0

    def train_to(self, step: int) -> None:
        """Make the updates that are missing."""
        updates_an_epoch = len(self._sampler) // BATCH
        while self.step < step:
            epoch, done = divmod(self.step, updates_an_epoch)
            self._sampler.set_epoch(epoch)
            self._sampler.position = done * BATCH
            for x_BF, y_B in itertools.islice(self._loader, step - self.step):
                loss = nn.functional.cross_entropy(self.model(x_BF), y_B)
                self.optimizer.zero_grad()
                loss.backward()
                average([p.grad for p in self.model.parameters() if p.grad is not None])
                self.optimizer.step()
                self.step += 1

    def state_dict(self) -> State:
        return {"step": self.step, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def average(gradients: list[torch.Tensor]) -> None:
    for gradient in gradients if world_size() > 1 else []:
        dist.all_reduce(gradient)
        gradient /= world_size()


def barrier() -> None:
    if world_size() > 1:
        dist.barrier()


@cache
def training() -> Training:
    """This process's."""
    return Training()


def state_at(step: int) -> State:
    """The state after update ``step``, which is made now if it was not yet."""
    training().train_to(step)
    return training().state_dict()


def sync(path: Path) -> None:
    """Make the bytes of a file, or the names in a directory, durable."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def run(save: Callable[[Path, int], None], load: Callable[[Path], State | None]) -> None:
    """Be the script: go on from what is there, train to the end, save on the way."""
    directory = Path(sys.argv[1])
    if world_size() > 1:
        dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    if rank() == 0:
        directory.mkdir(exist_ok=True)
    barrier()
    if (state := load(directory)) is not None:
        training().load_state_dict(state)
    for step in range(training().step // 2 * 2 + 2, LAST + 1, 2):
        save(directory, step)
    if world_size() > 1:
        dist.destroy_process_group()
