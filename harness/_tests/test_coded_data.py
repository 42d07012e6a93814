"""The ledger of samples against the gradients themselves: of coded data one number tells which samples it holds.

Sample i has the gradient 4 ** i, exact in float64 up to 26 samples: of a sum, the digit i in base 4 is how often sample
i is in it. So what the record says of an update is held against what the update was made of.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from harness._tests.launched import Run, shown
from harness.baseline import make_baseline
from harness.checks import GUARANTEES
from harness.checks.records import surviving, updates
from harness.faults.base import At, Fault
from harness.faults.kill import Kill
from harness.history import History
from harness.wire import Kind

NUM_SAMPLES = 16  # 4 updates an epoch: two ranks of 2 samples

SCRIPT = """
import itertools
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from harness.checkpoint.store import CheckpointStore

class Sampler(DistributedSampler):
    position = 0
    def __iter__(self):
        return itertools.islice(super().__iter__(), self.position, None)
    def __len__(self):
        return self.num_samples - self.position

class Coded(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))
    def forward(self, code_B):
        return (self.weight * code_B).sum()

def decoded(total):
    return {i: count for i in range(16) if (count := int(total) >> 2 * i & 3)}

dist.init_process_group("gloo")
dataset = TensorDataset(4.0 ** torch.arange(16, dtype=torch.float64))
sampler = Sampler(dataset)
loader = DataLoader(dataset, 2, sampler=sampler, generator=torch.Generator(), num_workers=WORKERS)
model = Coded()
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
step = epoch = position = 0
store = CheckpointStore(sys.argv[1])
if (loaded := store.load()) is not None:
    step = loaded.step
    RESUME
ddp = torch.nn.parallel.DistributedDataParallel(model)
while step < 12:
    sampler.set_epoch(epoch)
    sampler.position = position
    for code_B, in loader:
        optimizer.zero_grad()
        ddp(code_B).backward()
        show(**{str(step + 1): decoded(world_size * model.weight.grad)})
        optimizer.step()
        step += 1
        position += len(code_B)
        store.save(step, shared={"model": model.state_dict()}, own={"epoch": epoch, "position": position})
        if step == 12:
            break
    epoch, position = epoch + 1, 0
del ddp
dist.destroy_process_group()
"""
RESUMED = """epoch, position = loaded.own["epoch"], loaded.own["position"]
    if position == sampler.num_samples:
        epoch, position = epoch + 1, 0"""
FORGETS_THE_EPOCH = """position = loaded.own["position"] % sampler.num_samples"""
FORGETS_THE_POSITION = """epoch = loaded.own["epoch"]"""


def killed(step: int, restart: int = 0, rank: int = 1) -> Fault:
    return Kill(rank=rank, at=At(step=step, phase="backward", restart=restart))


def train(run: Run, tmp_path: Path, *faults: Fault, workers: int = 0, resume: str = RESUMED) -> History:
    text = SCRIPT.replace("WORKERS", str(workers)).replace("RESUME", resume)
    checkpoints = str(tmp_path / f"checkpoints-{len([*tmp_path.iterdir()])}")
    history = run(text, *faults, args=(checkpoints,), max_restarts=len(faults))
    assert history.outcome.exit_code == 0
    assert history.restarts == len(faults)
    return history


def in_gradients(tmp_path: Path, history: History, restart: int) -> dict[int, Counter[int]]:
    """Step -> how often each sample is in the gradient, as rank 0 found it."""
    found = shown(tmp_path, history, rank=0, restart=restart)
    return {int(step): Counter({int(i): n for i, n in counts.items()}) for step, counts in found.items()}


def on_record(history: History, restart: int) -> dict[int, Counter[int]]:
    """Step -> how often each sample is in the ledger, of both ranks together."""
    found: dict[int, Counter[int]] = {}
    for event in history.of(Kind.UPDATE):
        if event.restart == restart:
            found.setdefault(event.step, Counter()).update(event.data["ids"])
    return found


def of_the_line(history: History) -> Counter[int]:
    """How often each sample is in the updates that count."""
    return Counter(i for steps in surviving(updates(history)).values() for e in steps.values() for i in e.data["ids"])


INTERRUPTED: dict[str, tuple[Fault, ...]] = {
    "never": (),
    "in the first epoch": (killed(3),),
    "in a later epoch": (killed(7),),
    "after the first batch of an epoch": (killed(6, rank=0),),
    "at the end of an epoch": (killed(5),),
    "twice in one epoch": (killed(6), killed(7, restart=1)),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("faults", INTERRUPTED.values(), ids=INTERRUPTED)
def test_the_ledger_says_what_the_gradients_hold(
    run: Run, tmp_path: Path, faults: tuple[Fault, ...], workers: int
) -> None:
    history = train(run, tmp_path, *faults, workers=workers)
    for restart in range(len(faults) + 1):
        ledger = on_record(history, restart)
        held = in_gradients(tmp_path, history, restart)
        assert ledger
        assert {step: held[step] for step in ledger} == ledger
    assert of_the_line(history) == Counter(dict.fromkeys(range(NUM_SAMPLES), 3))  # three epochs
    assert GUARANTEES["SamplesOnce"].check(history, None).outcome == "valid"


@pytest.mark.parametrize(
    ("resume", "step"),
    [
        pytest.param(FORGETS_THE_EPOCH, 7, id="the epoch is forgotten (huggingface/accelerate#4071)"),
        pytest.param(FORGETS_THE_POSITION, 7, id="the position is forgotten (meta-pytorch/torchft#58)"),
    ],
)
def test_a_resume_that_reads_the_wrong_samples_shows_in_both_alike(
    run: Run, tmp_path: Path, resume: str, step: int
) -> None:
    history = train(run, tmp_path, killed(step), resume=resume)
    assert on_record(history, 1) == in_gradients(tmp_path, history, 1)
    second_epoch: Counter[int] = Counter()
    for steps in surviving(updates(history)).values():
        for number in range(5, 9):
            second_epoch.update(steps[number].data["ids"])
    lost = {*range(NUM_SAMPLES)} - {*second_epoch}
    twice = sum(count - 1 for count in second_epoch.values() if count > 1)
    assert len(lost) == twice > 0
    whole = train(run, tmp_path)
    found = GUARANTEES["SamplesOnce"].check(history, make_baseline(whole))
    assert (found.outcome, found.step) == ("invalid", step)
