"""Train in float16 with a gradient scaler and clipping; stop it anywhere, run it again, it goes on.

    torchrun --nproc-per-node 2 workloads/mixed_precision.py --checkpoint-dir /tmp/amp    # CPU (gloo), under 10 s
    torchrun --nproc-per-node gpu workloads/mixed_precision.py --checkpoint-dir /tmp/amp  # one rank a GPU (nccl)

float16 ends at 65,504, and the scale grows until a gradient overflows: on one rank first, and through the reduction on
all of them. Then all skip the update and halve the scale together. A skipped batch is used up and makes no step.

On CPU autocast and the scaler do the same as on a GPU. Tensor names end in their shape: B batch, F features.
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
parser.add_argument("--checkpoint-dir", default=".chaos/mixed_precision", help="where to save, and where to go on from")
parser.add_argument("--batch-size", type=int, default=8, help="samples a rank and update")
parser.add_argument("--lr", type=float, default=1e-2, help="peak learning rate of AdamW")
parser.add_argument("--dropout", type=float, default=0.1, help="share of activations that training leaves out")
parser.add_argument(
    "--clip-norm", type=float, default=0.5, help="largest norm of the gradient, all parameters together"
)
parser.add_argument("--scale", type=float, default=2.0**20, help="of the loss at the start; a power of 2")
args = parser.parse_args()
num_samples = 96  # with 2 ranks 6 batches an epoch, so that a short run sees several epochs
num_features = 32
lr_period = 200  # updates until the cosine reaches 0; not --steps, so that a longer run begins like a shorter one

# ---- the world
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
if device.type == "cuda":
    torch.cuda.set_device(device)
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))  # sums are then added up in one order only
dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

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

# ---- model: weights stay float32, what is computed from them is float16 where that is enough
torch.manual_seed(args.seed)  # the same initial weights on all ranks
model = nn.Sequential(nn.Linear(num_features, 128), nn.ReLU(), nn.Dropout(args.dropout), nn.Linear(128, 2)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=lr_period)
# a real job lets the scale grow every 2,000 updates: here a short run has to see it grow, overflow and shrink
scaler = torch.amp.GradScaler(device.type, init_scale=args.scale, growth_interval=6)
seed_rng(args.seed + 1 + rank)  # from here on dropout, which must differ between ranks

# ---- resume
step, epoch, position = 0, 0, 0  # updates done; where the next batch comes from
num_skipped = 0
config = {name: getattr(args, name) for name in ("seed", "batch_size", "lr", "dropout", "clip_norm", "scale")}
store = CheckpointStore(args.checkpoint_dir, keep_last=3, config=config)  # load() refuses others, by name
loaded = store.load()
if loaded is not None:
    step = loaded.step
    model.load_state_dict(loaded.shared["model"])
    optimizer.load_state_dict(loaded.shared["optimizer"])
    scheduler.load_state_dict(loaded.shared["scheduler"])
    scaler.load_state_dict(loaded.shared["scaler"])  # the scale, and how long it has not overflowed
    num_skipped = loaded.shared["progress"]["skipped"]
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

# ---- train
while step < args.steps:
    sampler.set_epoch(epoch)
    sampler.position = position
    for x_BF, y_B in loader:
        with torch.autocast(device.type, dtype=torch.float16):
            loss = nn.functional.cross_entropy(ddp(x_BF.to(device)), y_B.to(device))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)  # before clipping: else the norm is that of the scale
        nn.utils.clip_grad_norm_(model.parameters(), args.clip_norm)
        scale = scaler.get_scale()
        scaler.step(optimizer)  # not if a gradient overflowed; gradients are reduced by now, so all ranks see it
        scaler.update()
        position += len(y_B)
        if scaler.get_scale() < scale:
            num_skipped += 1
            if scale < 1:
                raise FloatingPointError(f"after update {step} gradients are not finite at any scale; lower --lr")
            continue
        scheduler.step()
        step += 1
        if step % args.save_every == 0 or step == args.steps:
            store.save(
                step,
                shared={
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(),
                    "scaler": scaler.state_dict(),
                    "progress": {"epoch": epoch, "skipped": num_skipped},
                },
                own={"rng": rng_state(), "sampler": {"epoch": epoch, "position": position}},
            )
            if rank == 0:
                print(f"step {step}: loss {loss.item():.4f}, scale {scaler.get_scale():.0f}, saved", flush=True)
        if step == args.steps:
            break
    epoch, position = epoch + 1, 0

# ---- end
if rank == 0:
    print(f"done: {step} steps, {num_skipped} updates skipped", flush=True)
del ddp  # before the group goes: its reducer would wait for gloo's threads with the interpreter locked
dist.destroy_process_group()
