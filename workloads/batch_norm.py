"""Train a network with batch normalisation on made-up data; stop it anywhere, run it again, it goes on.

    torchrun --nproc-per-node 2 workloads/batch_norm.py --checkpoint-dir /tmp/bn    # CPU (gloo), under 10 s
    torchrun --nproc-per-node gpu workloads/batch_norm.py --checkpoint-dir /tmp/bn  # one rank a GPU (nccl)

Each rank normalises by the mean and variance of its own batch, on the CPU as on GPUs (SyncBatchNorm, which takes those
of all ranks together, is for CUDA alone). So between updates the running statistics, which are buffers, differ between
ranks, and a rule must say which ones count: those of rank 0. DDP hands them out before each forward pass, and this
script before it evaluates or saves: what is evaluated is what is saved, and all ranks resume from it.

Tensor names end in their shape: B batch, F features.
"""

import argparse
import itertools
import os
from collections.abc import Iterator

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
parser.add_argument("--checkpoint-dir", default=".chaos/batch_norm", help="where to save, and where to go on from")
parser.add_argument("--batch-size", type=int, default=8, help="samples a rank and update")
parser.add_argument("--lr", type=float, default=1e-2, help="peak learning rate of AdamW")
parser.add_argument("--dropout", type=float, default=0.1, help="share of activations that training leaves out")
args = parser.parse_args()
num_samples, num_held_out = 100, 33  # with 2 ranks 6 updates an epoch, and 2 samples of each rank are left out
num_features = 32
lr_period = 200  # updates until the cosine reaches 0; not --steps, so that a longer run begins like a shorter one

# ---- the world
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
if device.type == "cuda":
    torch.cuda.set_device(device)
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))  # sums are then added up in one order only
dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

# ---- data: features of very different size, which only normalisation makes comparable
fixed = torch.Generator().manual_seed(1)
x_NF = torch.randn(num_samples + num_held_out, num_features, generator=fixed)
y_N = (x_NF @ torch.randn(num_features, generator=fixed) > 0).long()
x_NF = 10 * x_NF * torch.rand(num_features, generator=fixed) + torch.randn(num_features, generator=fixed)


class ResumableSampler(DistributedSampler[int]):
    """Gives what is left of an epoch: samples before ``position`` are neither read nor handed out again."""

    position = 0

    def __iter__(self) -> Iterator[int]:
        return itertools.islice(super().__iter__(), self.position, None)

    def __len__(self) -> int:
        return self.num_samples - self.position


dataset = TensorDataset(x_NF[:num_samples], y_N[:num_samples])
sampler = ResumableSampler(dataset, seed=args.seed)
# each pass over a DataLoader draws one number: from its own generator, or a resumed epoch would shift all dropout
order = torch.Generator()
# without the short batch at an epoch's end: a single sample has no variance
loader = DataLoader(dataset, args.batch_size, sampler=sampler, generator=order, drop_last=True)

# ---- model
torch.manual_seed(args.seed)  # the same initial weights on all ranks
model = nn.Sequential(
    *(nn.BatchNorm1d(num_features), nn.Linear(num_features, 64), nn.BatchNorm1d(64), nn.ReLU()),
    *(nn.Dropout(args.dropout), nn.Linear(64, 2)),
).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=lr_period)
seed_rng(args.seed + 1 + rank)  # from here on dropout, which must differ between ranks

# ---- resume
step, epoch, position = 0, 0, 0  # updates done; where the next batch comes from
config = {name: getattr(args, name) for name in ("seed", "batch_size", "lr", "dropout")}
store = CheckpointStore(args.checkpoint_dir, keep_last=3, config=config)  # load() refuses others, by name
loaded = store.load()
if loaded is not None:
    step = loaded.step
    model.load_state_dict(loaded.shared["model"])  # with its buffers
    optimizer.load_state_dict(loaded.shared["optimizer"])
    scheduler.load_state_dict(loaded.shared["scheduler"])
    epoch, position = loaded.own["sampler"]["epoch"], loaded.own["sampler"]["position"]
    if sampler.num_samples - position < args.batch_size:  # saved after the last batch of an epoch
        epoch, position = epoch + 1, 0
ddp = DistributedDataParallel(
    model,
    device_ids=[device.index] if device.type == "cuda" else None,
    # keeps the buckets as they are: laid out anew after the first update, more than two ranks add up in another order
    find_unused_parameters=world_size > 2,
)
if loaded is not None:
    set_rng_state(loaded.own["rng"])  # last: nothing may draw between here and the next update


# ---- evaluate
def take_buffers_of_rank_0() -> None:
    for buffer in model.buffers():
        dist.broadcast(buffer, src=0)


def evaluate() -> float:
    """Accuracy on the held-out samples, each counted once, all of them under the same statistics."""
    mine = slice(num_samples + rank, None, world_size)
    model.eval()
    with torch.no_grad():
        is_right_B = model(x_NF[mine].to(device)).argmax(dim=1) == y_N[mine].to(device)
    model.train()
    counts = torch.stack([is_right_B.sum(), torch.tensor(len(is_right_B), device=device)])
    dist.all_reduce(counts)
    return counts[0].item() / counts[1].item()


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
        if step % args.save_every == 0 or step == args.steps:
            take_buffers_of_rank_0()
            accuracy = evaluate()
            store.save(
                step,
                shared={
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(),
                    "progress": {"epoch": epoch, "accuracy": accuracy},
                },
                own={"rng": rng_state(), "sampler": {"epoch": epoch, "position": position}},
            )
            if rank == 0:
                print(f"step {step}: held-out accuracy {accuracy:.4f}, saved", flush=True)
        if step == args.steps:
            break
    epoch, position = epoch + 1, 0

# ---- end
if rank == 0:
    print(f"done: {step} steps", flush=True)
del ddp  # before the group goes: its reducer would wait for gloo's threads with the interpreter locked
dist.destroy_process_group()
