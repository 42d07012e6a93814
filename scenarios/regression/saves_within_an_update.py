"""Saves in the middle of accumulating gradients, and goes on from there: not a sample is computed twice.

What such a save holds beside the usual state: each rank's own gradients so far, which are not reduced yet, and how many
micro-batches of the window they are of.

    torchrun --nproc-per-node 2 scenarios/regression/saves_within_an_update.py /tmp/checkpoints
"""

import contextlib
import itertools
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.nn  # before the group is made: imported later, its defaults pin the group and gloo never ends
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from harness.checkpoint.rng import rng_state, set_rng_state
from harness.checkpoint.store import CheckpointStore

STEPS, SAVE_EVERY, WINDOW, SAVE_AFTER = 12, 5, 4, 2  # updates; micro-batches an update, and before a save

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
dist.init_process_group("gloo")
fixed = torch.Generator().manual_seed(1)
x_NF = torch.randn(96, 8, generator=fixed)
dataset = TensorDataset(x_NF, (x_NF.sum(dim=1) > 0).long())
sampler: DistributedSampler[int] = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=4, sampler=sampler, generator=torch.Generator())  # 3 updates an epoch
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
torch.manual_seed(1 + dist.get_rank())

store = CheckpointStore(sys.argv[1])
loaded = store.load()
step = done = 0  # updates; micro-batches of the update that is being made
if loaded is not None:
    step, done = loaded.step, loaded.own["done"]
    model.load_state_dict(loaded.shared["model"])
    optimizer.load_state_dict(loaded.shared["optimizer"])
ddp = DistributedDataParallel(model)
if loaded is not None:
    for parameter, gradient in zip(model.parameters(), loaded.own["gradients"], strict=True):
        parameter.grad = gradient
    set_rng_state(loaded.own["rng"])

while step < STEPS:
    epoch, first = divmod(step * WINDOW + done, len(loader))
    sampler.set_epoch(epoch)
    for x_BF, y_B in itertools.islice(loader, first, None):
        if done == 0:
            optimizer.zero_grad()
        done += 1
        with contextlib.nullcontext() if done == WINDOW else ddp.no_sync():
            (nn.functional.cross_entropy(ddp(x_BF), y_B) / WINDOW).backward()
        if done == SAVE_AFTER and step > 0 and step % SAVE_EVERY == 0:
            gradients = [parameter.grad for parameter in model.parameters()]
            store.save(
                step,
                shared={"model": model.state_dict(), "optimizer": optimizer.state_dict()},
                own={"done": done, "gradients": gradients, "rng": rng_state()},
            )
        if done == WINDOW:
            optimizer.step()
            step, done = step + 1, 0
        if step == STEPS:
            break
del ddp
dist.destroy_process_group()
