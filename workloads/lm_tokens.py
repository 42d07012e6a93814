"""Train a small decoder-only language model on padded sequences; stop it anywhere, run it again, it goes on.

    torchrun --nproc-per-node 2 workloads/lm_tokens.py --checkpoint-dir /tmp/lm    # CPU (gloo), about 10 s
    torchrun --nproc-per-node gpu workloads/lm_tokens.py --checkpoint-dir /tmp/lm  # one rank a GPU (nccl)

An update takes --accumulate micro-batches a rank. Each rank has another number of targets, sometimes none at all, so
each head's loss is its sum over all ranks and micro-batches, divided by the number of its targets over all of them: no
target counts more than another, however the sequences are dealt out.

Tensor names end in their shape: B sequences, T tokens, W width, H the two losses (next token, topic).
"""

import argparse
import contextlib
import itertools
import math
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.distributed.nn  # before the group is made: imported later, its defaults pin the group and gloo never ends
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, DistributedSampler

from harness.checkpoint.rng import rng_state, seed_rng, set_rng_state
from harness.checkpoint.store import CheckpointStore

# ---- knobs
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=20, help="optimizer updates in all, those before a resume included")
parser.add_argument("--save-every", type=int, default=5, help="updates between checkpoints; the last is always saved")
parser.add_argument("--seed", type=int, default=0, help="of the initial weights, the order of samples and dropout")
parser.add_argument("--checkpoint-dir", default=".chaos/lm_tokens", help="where to save, and where to go on from")
parser.add_argument("--batch-size", type=int, default=4, help="sequences a rank and micro-batch")
parser.add_argument("--accumulate", type=int, default=4, help="micro-batches a rank and update")
parser.add_argument("--lr", type=float, default=3e-3, help="peak learning rate of AdamW")
parser.add_argument("--dropout", type=float, default=0.1, help="share of activations that training leaves out")
args = parser.parse_args()
num_sequences = 270  # with 2 ranks 9 updates an epoch; the last has 2 micro-batches, the very last of 3 sequences
vocabulary_size, num_topics, max_length, width = 61, 4, 24, 32
topic_weight = 0.5  # of the topic's loss beside the next token's
no_target = -100  # what cross_entropy leaves out
lr_period = 200  # updates until the cosine reaches 0; not --steps, so that a longer run begins like a shorter one

# ---- the world
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
if device.type == "cuda":
    torch.cuda.set_device(device)
    torch.backends.cuda.enable_mem_efficient_sdp(False)  # its backward pass adds up in no fixed order
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))  # sums are then added up in one order only
dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()


# ---- data: each topic counts on in steps of its own; half the sequences are questions alone, and have no target
class Batch(NamedTuple):
    token_BT: Tensor  # padded on the right with 0, which causal attention hides from every token that counts
    target_BT: Tensor  # the next token; no_target in questions and padding
    last_B: Tensor  # position of the last token
    topic_B: Tensor  # no_target where it is not known


def make_sequences(fixed: torch.Generator) -> list[tuple[Tensor, Tensor, int]]:
    """Tokens and targets, 3 to ``max_length`` of them, and the topic of one sequence in three, of each sequence."""
    # all numbers in one go: a call costs far more than what it draws
    ranges = (num_topics, 61, 22, 8)
    draws_N4 = torch.randint(math.lcm(*ranges), (num_sequences, 4), generator=fixed) % torch.tensor(ranges)
    tokens_NT = (draws_N4[:, 1:2] + (2 * draws_N4[:, :1] + 1) * torch.arange(max_length + 1)) % vocabulary_size
    targets_NT = tokens_NT.clone()
    sequences = []
    for token_T, target_T, (topic, start, length, question) in zip(
        tokens_NT, targets_NT, draws_N4.tolist(), strict=True
    ):
        target_T[1 : 1 + question if start % 2 else None] = no_target
        known = topic if length % 3 == 0 else no_target
        sequences.append((token_T[: length + 3], target_T[1 : length + 4], known))
    return sequences


def collate(sequences: list[tuple[Tensor, Tensor, int]]) -> Batch:
    tokens, targets = [token_T for token_T, _, _ in sequences], [target_T for _, target_T, _ in sequences]
    return Batch(
        pad_sequence(tokens, batch_first=True).to(device),
        pad_sequence(targets, batch_first=True, padding_value=no_target).to(device),
        torch.tensor([len(token_T) - 1 for token_T in tokens], device=device),
        torch.tensor([topic for _, _, topic in sequences], device=device),
    )


class ResumableSampler(DistributedSampler[int]):
    """Gives what is left of an epoch: samples before ``position`` are neither read nor handed out again."""

    position = 0

    def __iter__(self) -> Iterator[int]:
        return itertools.islice(super().__iter__(), self.position, None)

    def __len__(self) -> int:
        return self.num_samples - self.position


fixed = torch.Generator().manual_seed(1)
dataset: Any = make_sequences(fixed)
sampler = ResumableSampler(dataset, seed=args.seed)
# each pass over a DataLoader draws one number: from its own generator, or a resumed epoch would shift all dropout
order = torch.Generator()
loader: DataLoader[Batch] = DataLoader(dataset, args.batch_size, sampler=sampler, collate_fn=collate, generator=order)


# ---- model
class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary_size, width), nn.Embedding(max_length, width)
        block = nn.TransformerEncoderLayer(width, 2, 4 * width, args.dropout, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, num_layers=2, enable_nested_tensor=False)
        self.next_token, self.topic = nn.Linear(width, vocabulary_size), nn.Linear(width, num_topics)

    def forward(self, batch: Batch) -> Tensor:
        """Both losses, each summed over its targets (H): 0 without any, where a mean would be 0 / 0."""
        x_BTW = self.token(batch.token_BT) + self.position.weight[: batch.token_BT.shape[1]]
        hidden_TT = nn.Transformer.generate_square_subsequent_mask(x_BTW.shape[1], device=device)
        x_BTW = self.blocks(x_BTW, mask=hidden_TT, is_causal=True)
        last_BW = x_BTW[torch.arange(len(x_BTW), device=device), batch.last_B]
        next_token = cross_entropy(self.next_token(x_BTW).flatten(0, 1), batch.target_BT.flatten(), reduction="sum")
        return torch.stack([next_token, cross_entropy(self.topic(last_BW), batch.topic_B, reduction="sum")])


torch.manual_seed(args.seed)  # the same initial weights on all ranks
model = LanguageModel().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=lr_period)
seed_rng(args.seed + 1 + rank)  # from here on dropout, which must differ between ranks

# ---- resume
step, epoch, position = 0, 0, 0  # updates done; where the next window of micro-batches comes from
config = {name: getattr(args, name) for name in ("seed", "batch_size", "accumulate", "lr", "dropout")}
store = CheckpointStore(args.checkpoint_dir, keep_last=3, config=config)  # load() refuses others, by name
loaded = store.load()
if loaded is not None:
    step = loaded.step
    model.load_state_dict(loaded.shared["model"])
    optimizer.load_state_dict(loaded.shared["optimizer"])
    scheduler.load_state_dict(loaded.shared["scheduler"])
    epoch, position = loaded.own["sampler"]["epoch"], loaded.own["sampler"]["position"]
    if position == sampler.num_samples:  # saved after the last window of an epoch
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
weight_H = torch.tensor([1.0, topic_weight], device=device)
while step < args.steps:
    sampler.set_epoch(epoch)
    sampler.position = position
    batches = iter(loader)
    while step < args.steps and (window := list(itertools.islice(batches, args.accumulate))):
        # How many targets the update has must be known before the first backward pass, and on all ranks.
        num_targets_H = torch.zeros(2, device=device)
        for batch in window:
            num_targets_H += torch.stack([(x != no_target).sum() for x in (batch.target_BT, batch.topic_B)])
        dist.all_reduce(num_targets_H)
        sums_H = torch.zeros(2, device=device)
        optimizer.zero_grad()
        for number, batch in enumerate(window, start=1):
            # Gradients are reduced once, in the last backward pass; forward and backward both belong in no_sync.
            with contextlib.nullcontext() if number == len(window) else ddp.no_sync():
                sum_H = ddp(batch)
                mean = (weight_H * sum_H / num_targets_H.clamp(min=1)).sum()
                (world_size * mean).backward()  # DDP divides by the number of ranks, and no target should be
            sums_H += sum_H.detach()
        optimizer.step()
        scheduler.step()
        step += 1
        position += sum(len(batch.token_BT) for batch in window)
        if step % args.save_every == 0 or step == args.steps:
            store.save(
                step,
                shared={
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(),
                },
                own={"rng": rng_state(), "sampler": {"epoch": epoch, "position": position}},
            )
            dist.all_reduce(sums_H)
            next_token, topic = (sums_H / num_targets_H.clamp(min=1)).tolist()
            if rank == 0:
                print(f"step {step}: mean loss of a token {next_token:.4f}, of a topic {topic:.4f}, saved", flush=True)
    epoch, position = epoch + 1, 0

# ---- end
if rank == 0:
    num_together = world_size * args.batch_size * args.accumulate
    print(f"done: {step} steps of up to {num_together} sequences", flush=True)
del ddp  # before the group goes: its reducer would wait for gloo's threads with the interpreter locked
dist.destroy_process_group()
