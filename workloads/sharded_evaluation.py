"""Train a classifier, and evaluate it on all ranks with an exact metric; stop it anywhere, run it again, it goes on.

    torchrun --nproc-per-node 2 workloads/sharded_evaluation.py --checkpoint-dir /tmp/eval    # CPU (gloo), under 10 s
    torchrun --nproc-per-node gpu workloads/sharded_evaluation.py --checkpoint-dir /tmp/eval  # one rank a GPU (nccl)

The number of ranks changes no metric. Each held-out sample is on one rank: a DistributedSampler would repeat some to
make shards equal, and they would count twice. What ranks add up are counts, and only the sums are divided: the mean of
the ranks' accuracies is another number where shards differ in length, and of their F1 scores always.

Tensor names end in their shape: B batch, F features, C classes.
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
parser.add_argument("--checkpoint-dir", default=".chaos/sharded_evaluation", help="where to save, and to go on from")
parser.add_argument("--batch-size", type=int, default=8, help="samples a rank and update")
parser.add_argument("--lr", type=float, default=1e-2, help="peak learning rate of AdamW")
parser.add_argument("--num-held-out", type=int, default=37, help="samples to evaluate on; any number from 1")
args = parser.parse_args()
num_samples = 96  # with 2 ranks 6 updates an epoch, so that a short run sees several epochs
num_features, num_classes = 32, 3
lr_period = 200  # updates until the cosine reaches 0; not --steps, so that a longer run begins like a shorter one

# ---- the world
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
if device.type == "cuda":
    torch.cuda.set_device(device)
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))  # sums are then added up in one order only
dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

# ---- data: the label says which of three fixed mixtures of the features is largest
fixed = torch.Generator().manual_seed(1)
mixture_FC = torch.randn(num_features, num_classes, generator=fixed)
x_NF = torch.randn(num_samples, num_features, generator=fixed)
held_out_x_NF = torch.randn(args.num_held_out, num_features, generator=fixed)
dataset = TensorDataset(x_NF, (x_NF @ mixture_FC).argmax(dim=1))
held_out = TensorDataset(torch.arange(args.num_held_out), held_out_x_NF, (held_out_x_NF @ mixture_FC).argmax(dim=1))


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
shard = range(rank, args.num_held_out, world_size)  # no padding: with fewer samples than ranks some have none
held_out_loader = DataLoader(held_out, args.batch_size, sampler=shard, generator=torch.Generator())

# ---- model
torch.manual_seed(args.seed)  # the same initial weights on all ranks
model = nn.Sequential(nn.Linear(num_features, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, num_classes)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=lr_period)
seed_rng(args.seed + 1 + rank)  # from here on dropout, which must differ between ranks

# ---- resume
step, epoch, position = 0, 0, 0  # updates done; where the next batch comes from
best_f1 = 0.0  # on the held-out samples
config = {name: getattr(args, name) for name in ("seed", "batch_size", "lr", "num_held_out")}
store = CheckpointStore(args.checkpoint_dir, keep_last=3, config=config)  # load() refuses others, by name
loaded = store.load()
if loaded is not None:
    step = loaded.step
    model.load_state_dict(loaded.shared["model"])
    optimizer.load_state_dict(loaded.shared["optimizer"])
    scheduler.load_state_dict(loaded.shared["scheduler"])
    best_f1 = loaded.shared["progress"]["best_f1"]
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
    """Accuracy and macro F1 score on all held-out samples.

    Raises:
        RuntimeError: one of them was not counted, or counted twice.
    """
    num_counted_N = torch.zeros(args.num_held_out, dtype=torch.int64, device=device)
    confusion_CC = torch.zeros(num_classes, num_classes, dtype=torch.int64, device=device)  # true, predicted
    model.eval()
    with torch.no_grad():
        for id_B, x_BF, y_B in held_out_loader:
            predicted_B = model(x_BF.to(device)).argmax(dim=1)  # not ddp(): shards may differ in length
            pair_B = y_B.to(device) * num_classes + predicted_B
            confusion_CC += pair_B.bincount(minlength=num_classes**2).view_as(confusion_CC)
            num_counted_N += id_B.to(device).bincount(minlength=args.num_held_out)
    model.train()
    dist.all_reduce(num_counted_N)
    dist.all_reduce(confusion_CC)
    if wrong := (num_counted_N != 1).nonzero().flatten().tolist():
        raise RuntimeError(f"held-out samples {wrong} were not counted once; give each to one rank, once")
    right_C = confusion_CC.diagonal().double()
    f1_C = 2 * right_C / (confusion_CC.sum(dim=0) + confusion_CC.sum(dim=1)).clamp(min=1)
    return right_C.sum().item() / args.num_held_out, f1_C.mean().item()


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
            accuracy, f1 = evaluate()
            best_f1 = max(best_f1, f1)
            store.save(
                step,
                shared={
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(),
                    "progress": {"epoch": epoch, "accuracy": accuracy, "f1": f1, "best_f1": best_f1},
                },
                own={"rng": rng_state(), "sampler": {"epoch": epoch, "position": position}},
            )
            if rank == 0:
                print(f"step {step}: held-out accuracy {accuracy:.4f}, macro F1 {f1:.4f}, saved", flush=True)
        if step == args.steps:
            break
    epoch, position = epoch + 1, 0

# ---- end
if rank == 0:
    print(f"done: {step} steps, best macro F1 {best_f1:.4f}", flush=True)
del ddp  # before the group goes: its reducer would wait for gloo's threads with the interpreter locked
dist.destroy_process_group()
