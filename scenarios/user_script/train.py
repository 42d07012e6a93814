"""A training script as anyone may have it: plain PyTorch, its own checkpoint file, not a word about this harness.

    torchrun --nproc-per-node 2 scenarios/user_script/train.py --out /tmp/sine

It learns a sine. A checkpoint is written after each epoch of 4 updates; run it again, and it goes on from there.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, required=True)
parser.add_argument("--epochs", type=int, default=5)
args = parser.parse_args()

dist.init_process_group("gloo")
rank = dist.get_rank()

# data: 64 points, 8 a rank and update with two ranks
x = torch.linspace(-3, 3, 64).unsqueeze(1)
dataset = TensorDataset(x, torch.sin(x))
sampler = DistributedSampler(dataset, seed=1)
loader = DataLoader(dataset, batch_size=8, sampler=sampler)

torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

# go on from the last checkpoint, if there is one
checkpoint = args.out / "checkpoint.pt"
first_epoch = 0
if checkpoint.exists():
    saved = torch.load(checkpoint, weights_only=True)
    model.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first_epoch = saved["epoch"] + 1

for epoch in range(first_epoch, args.epochs):
    sampler.set_epoch(epoch)
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        args.out.mkdir(parents=True, exist_ok=True)
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        draft = checkpoint.with_suffix(".tmp")
        torch.save(state, draft)
        draft.replace(checkpoint)  # the old one stays until the new one is whole
        print(f"epoch {epoch}: loss {loss.item():.4f}, saved", flush=True)
    dist.barrier()

del model  # before the group: DDP's reducer can wait for gloo's threads for ever
dist.destroy_process_group()
