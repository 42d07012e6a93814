"""A training script whose update takes about 15 ms of one core; its last line is that time, as median, in ms.

CPU time, not wall time: other processes of the machine would drown what is looked for.
"""

import statistics
import time

import torch
import torch.distributed as dist
import torch.distributed.nn
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
dist.init_process_group("gloo")
batch_size, width, num_updates, num_warm_up = 512, 256, 80, 20
dataset = TensorDataset(torch.randn(batch_size * num_updates, width), torch.randint(0, 2, (batch_size * num_updates,)))
layers = [layer for _ in range(4) for layer in (nn.Linear(width, width), nn.ReLU())]
ddp = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(width, 2)))
optimizer = torch.optim.AdamW(ddp.parameters())
times_ns = []
started = time.process_time_ns()
for x, y in DataLoader(dataset, batch_size):
    loss = nn.functional.cross_entropy(ddp(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    times_ns.append(time.process_time_ns() - started)
    started = time.process_time_ns()
print(statistics.median(times_ns[num_warm_up:]) / 1e6, flush=True)
del ddp
dist.destroy_process_group()
