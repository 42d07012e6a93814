"""Train a small convolutional network on handwritten digits; stop it anywhere, run it again, it goes on.

    torchrun --nproc-per-node 2 workloads/ddp_digits.py --checkpoint-dir /tmp/digits    # CPU (gloo), 0.9 in 15 s
    torchrun --nproc-per-node gpu workloads/ddp_digits.py --checkpoint-dir /tmp/digits  # one rank a GPU (nccl)

The digits ship with scikit-learn. Every checkpoint follows an evaluation on held-out digits, each counted once
whatever the number of ranks. Tensor names end in their shape: B batch, H x W pixels of one channel, C classes.
"""

import argparse
import itertools
import os
from collections.abc import Iterator

import torch
import torch.distributed as dist
import torch.distributed.nn  # before the group is made: imported later, its defaults pin the group and gloo never ends
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from harness.checkpoint.rng import rng_state, seed_rng, set_rng_state
from harness.checkpoint.store import CheckpointStore

# ---- knobs
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=120, help="optimizer updates in all, those before a resume included")
parser.add_argument("--save-every", type=int, default=30, help="updates between checkpoints; the last is always saved")
parser.add_argument("--seed", type=int, default=0, help="of the initial weights, the order of samples and dropout")
parser.add_argument("--checkpoint-dir", default=".chaos/ddp_digits", help="where to save, and where to go on from")
parser.add_argument("--batch-size", type=int, default=32, help="samples a rank and update")
parser.add_argument("--lr", type=float, default=1e-2, help="peak learning rate of AdamW")
args = parser.parse_args()
num_held_out = 297  # of 1,797 digits; odd, so that two ranks evaluate shards of different length
lr_period = 500  # updates until the cosine reaches 0; not --steps, so that a longer run begins like a shorter one

# ---- the world
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
if device.type == "cuda":
    torch.cuda.set_device(device)
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))  # sums are then added up in one order only
dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

# ---- data: 8 x 8 pixels with values from 0 to 16, in an order that mixes writers
digits = load_digits()
x_N1HW = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
y_N = torch.tensor(digits.target, dtype=torch.long)
dataset = TensorDataset(x_N1HW[num_held_out:], y_N[num_held_out:])


class ResumableSampler(DistributedSampler[int]):
    """Gives what is left of an epoch: samples before ``position`` are neither read nor handed out again."""

    position = 0

    def __iter__(self) -> Iterator[int]:
        return itertools.islice(super().__iter__(), self.position, None)

    def __len__(self) -> int:
        return self.num_samples - self.position


sampler = ResumableSampler(dataset, seed=args.seed)
# each pass over a DataLoader draws one number: from its own generator, or a resumed epoch would shift all dropout
loader = DataLoader(dataset, args.batch_size, sampler=sampler, generator=torch.Generator())

# ---- model
torch.manual_seed(args.seed)  # the same initial weights on all ranks
model = nn.Sequential(  # (B, 1, 8, 8) -> (B, 8, 4, 4) -> (B, 16, 2, 2) -> (B, 10)
    *(nn.Conv2d(1, 8, kernel_size=3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Conv2d(8, 16, kernel_size=3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Flatten(), nn.Dropout(0.1), nn.Linear(64, 10)),
).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=lr_period)
seed_rng(args.seed + 1 + rank)  # from here on dropout, which must differ between ranks

# ---- resume
step, epoch, position = 0, 0, 0  # updates done; where the next batch comes from
best_accuracy = 0.0  # on the held-out digits
config = {"seed": args.seed, "batch_size": args.batch_size, "lr": args.lr}  # load() refuses others, by name
store = CheckpointStore(args.checkpoint_dir, keep_last=3, config=config)
loaded = store.load()
if loaded is not None:
    step = loaded.step
    model.load_state_dict(loaded.shared["model"])
    optimizer.load_state_dict(loaded.shared["optimizer"])
    scheduler.load_state_dict(loaded.shared["scheduler"])
    best_accuracy = loaded.shared["progress"]["best_accuracy"]
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


# ---- evaluate
def evaluate() -> tuple[float, float]:
    """Mean loss and accuracy on the held-out digits: sums and counts of all ranks are added up before dividing."""
    mine = slice(rank, num_held_out, world_size)  # each digit on one rank only
    model.eval()
    with torch.no_grad():
        logits_BC = model(x_N1HW[mine].to(device))
        y_B = y_N[mine].to(device)
        loss_sum = nn.functional.cross_entropy(logits_BC, y_B, reduction="sum").item()
        num_right = (logits_BC.argmax(dim=1) == y_B).sum().item()
    model.train()
    totals = torch.tensor([loss_sum, num_right, len(y_B)], dtype=torch.float64, device=device)
    dist.all_reduce(totals)
    return (totals[0] / totals[2]).item(), (totals[1] / totals[2]).item()


# ---- train
while step < args.steps:
    sampler.set_epoch(epoch)
    sampler.position = position
    for x_B1HW, y_B in loader:
        loss = nn.functional.cross_entropy(ddp(x_B1HW.to(device)), y_B.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        step += 1
        position += len(y_B)
        if step % args.save_every == 0 or step == args.steps:
            held_out_loss, accuracy = evaluate()
            best_accuracy = max(best_accuracy, accuracy)
            store.save(
                step,
                shared={
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(),
                    "progress": {"epoch": epoch, "best_accuracy": best_accuracy},
                },
                own={"rng": rng_state(), "sampler": {"epoch": epoch, "position": position}},
            )
            if rank == 0:
                print(f"step {step}: held-out loss {held_out_loss:.4f}, accuracy {accuracy:.4f}, saved", flush=True)
        if step == args.steps:
            break
    epoch, position = epoch + 1, 0

# ---- end
held_out_loss, accuracy = evaluate()
if rank == 0:
    print(f"done: {step} steps, held-out loss {held_out_loss:.4f}, accuracy {accuracy:.4f}", flush=True)
del ddp  # before the group goes: its reducer would wait for gloo's threads with the interpreter locked
dist.destroy_process_group()
