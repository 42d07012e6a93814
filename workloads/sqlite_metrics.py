"""Train, and write each update's metrics to a database once; stop it anywhere, run it again, it goes on.

    torchrun --nproc-per-node 2 workloads/sqlite_metrics.py --checkpoint-dir /tmp/metrics    # CPU (gloo), under 10 s
    torchrun --nproc-per-node gpu workloads/sqlite_metrics.py --checkpoint-dir /tmp/metrics  # one rank a GPU (nccl)

A database is not rolled back with the model: after a crash it is ahead of the checkpoint, and updates are done again
that it holds already. So each effect has a key, the run id and the global step, and the key is written in the same
transaction as the effect: where the key is, the effect has happened. So even a counter goes up once for each update.

Tensor names end in their shape: B batch, F features.
"""

import argparse
import itertools
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn  # before the group is made: imported later, its defaults pin the group and gloo never ends
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from harness.checkpoint.rng import rng_state, seed_rng, set_rng_state
from harness.checkpoint.store import CheckpointStore

# ---- knobs
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=20, help="optimizer updates in all, those before a resume included")
parser.add_argument("--save-every", type=int, default=5, help="updates between checkpoints; the last is always saved")
parser.add_argument("--seed", type=int, default=0, help="of the initial weights, the order of samples and dropout")
parser.add_argument("--checkpoint-dir", default=".chaos/sqlite_metrics", help="where to save, and where to go on from")
parser.add_argument("--database", help="an SQLite file; left out: the checkpoint directory's name and .sqlite")
parser.add_argument("--run-id", default="run", help="the same in every launch of this job, and in no other job's")
parser.add_argument("--batch-size", type=int, default=8, help="samples a rank and update")
parser.add_argument("--lr", type=float, default=1e-2, help="peak learning rate of AdamW")
args = parser.parse_args()
num_samples = 96  # with 2 ranks 6 updates an epoch, so that a short run sees several epochs
num_features = 32
lr_period = 200  # updates until the cosine reaches 0; not --steps, so that a longer run begins like a shorter one

# ---- the world
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
if device.type == "cuda":
    torch.cuda.set_device(device)
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))  # sums are then added up in one order only
dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
launch = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))  # who wrote a row is kept with it

# ---- data: the label says whether a fixed mixture of the features is positive
fixed = torch.Generator().manual_seed(1)
x_NF = torch.randn(num_samples, num_features, generator=fixed)
y_N = (x_NF @ torch.randn(num_features, generator=fixed) > 0).long()


class ResumableSampler(DistributedSampler[int]):
    """Gives what is left of an epoch: samples before ``position`` are neither read nor handed out again."""

    position = 0

    def __iter__(self) -> Iterator[int]:
        return itertools.islice(super().__iter__(), self.position, None)

    def __len__(self) -> int:
        return self.num_samples - self.position


dataset = TensorDataset(x_NF, y_N)
sampler = ResumableSampler(dataset, seed=args.seed)
# each pass over a DataLoader draws one number: from its own generator, or a resumed epoch would shift all dropout
loader = DataLoader(dataset, args.batch_size, sampler=sampler, generator=torch.Generator())

# ---- model
torch.manual_seed(args.seed)  # the same initial weights on all ranks
model = nn.Sequential(nn.Linear(num_features, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 2)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=lr_period)
seed_rng(args.seed + 1 + rank)  # from here on dropout, which must differ between ranks

# ---- resume
step, epoch, position = 0, 0, 0  # updates done; where the next batch comes from
config = {name: getattr(args, name) for name in ("seed", "batch_size", "lr", "run_id")}
store = CheckpointStore(args.checkpoint_dir, keep_last=3, config=config)  # load() refuses others, by name
loaded = store.load()
if loaded is not None:
    step = loaded.step
    model.load_state_dict(loaded.shared["model"])
    optimizer.load_state_dict(loaded.shared["optimizer"])
    scheduler.load_state_dict(loaded.shared["scheduler"])
    epoch, position = loaded.own["sampler"]["epoch"], loaded.own["sampler"]["position"]
    if position == sampler.num_samples:  # saved after the last batch of an epoch
        epoch, position = epoch + 1, 0
ddp = DistributedDataParallel(
    model,
    device_ids=[device.index] if device.type == "cuda" else None,
    # keeps the buckets as they are: laid out anew after the first update, more than two ranks add up in another order
    find_unused_parameters=world_size > 2,
)
if loaded is not None:
    set_rng_state(loaded.own["rng"])  # last: nothing may draw between here and the next update


# ---- metrics
class Metrics:
    """What the outside world sees of the run: a row for each update, and how many samples the run has used in all."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self.database = sqlite3.connect(file)
        self.database.executescript("""
            CREATE TABLE IF NOT EXISTS metrics (
                run_id TEXT, step INTEGER, loss REAL, samples INTEGER, launch INTEGER, PRIMARY KEY (run_id, step)
            );
            CREATE TABLE IF NOT EXISTS usage (run_id TEXT PRIMARY KEY, samples INTEGER);
        """)

    def write(self, step: int, loss: float, samples: int) -> None:
        """Write the row and count the samples, both or neither; do nothing if the row is there."""
        with self.database:  # one transaction
            row = (args.run_id, step, loss, samples, launch)
            written = self.database.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", row)
            if written.rowcount == 1:
                self.database.execute(
                    "INSERT INTO usage VALUES (?, ?) ON CONFLICT DO UPDATE SET samples = samples + excluded.samples",
                    (args.run_id, samples),
                )


metrics = Metrics(Path(args.database or f"{args.checkpoint_dir}.sqlite")) if rank == 0 else None

# ---- train
while step < args.steps:
    sampler.set_epoch(epoch)
    sampler.position = position
    for x_BF, y_B in loader:
        loss = nn.functional.cross_entropy(ddp(x_BF.to(device)), y_B.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        step += 1
        position += len(y_B)
        totals = torch.stack([loss.detach() * len(y_B), torch.tensor(float(len(y_B)), device=device)])
        dist.all_reduce(totals)
        if metrics is not None:
            metrics.write(step, loss=(totals[0] / totals[1]).item(), samples=int(totals[1].item()))
        if step % args.save_every == 0 or step == args.steps:
            store.save(
                step,
                shared={
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(),
                    "progress": {"epoch": epoch},
                },
                own={"rng": rng_state(), "sampler": {"epoch": epoch, "position": position}},
            )
            if rank == 0:
                print(f"step {step}: saved", flush=True)
        if step == args.steps:
            break
    epoch, position = epoch + 1, 0

# ---- end
if metrics is not None:
    metrics.database.close()
    print(f"done: {step} steps", flush=True)
del ddp  # before the group goes: its reducer would wait for gloo's threads with the interpreter locked
dist.destroy_process_group()
