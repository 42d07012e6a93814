"""Real ranks that hang, each in its own way: who waits where, who is to be looked at, and who left no evidence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness._tests.launched import Run
from harness.checks import GUARANTEES
from harness.checks.base import Verdict
from harness.checks.diagnosis import diagnose
from harness.history import History
from harness.wire import STACKS_SIGNAL, Kind

# Rank ODD gets stuck by its own doing; the others wait for it in the second all_reduce.
STUCK = """
import ctypes, signal, threading
odd = ODD
def stuck():
    WAY
def train():
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    if rank == odd:
        stuck()
    dist.all_reduce(torch.ones(1))
train()
"""
LOOP = "while True: pass"
STOPPED = "os.kill(os.getpid(), signal.SIGSTOP); signal.pause()  # continued, it stays where it is"
LOCKED = "ctypes.PyDLL(None).sleep(60)  # C code that keeps the interpreter locked"
THREAD = "t = threading.Thread(target=ctypes.PyDLL(None).sleep, args=(60,)); t.start(); t.join()"
WAYS = {
    "an endless loop": (LOOP, "its process was busy"),
    "a stopped process": (STOPPED, "its process was stopped (SIGSTOP)"),
    "C code that holds the interpreter's lock": (LOCKED, ""),
    "a thread that holds the interpreter's lock": (THREAD, ""),
}


def on_deadline(history: History) -> Verdict:
    assert history.outcome.timed_out
    return GUARANTEES["EndsInTime"].check(history, None)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_on_the_deadline_the_stuck_rank_is_named_with_the_line_it_stands_at(run: Run, way: str) -> None:
    doing, state = WAYS[way]
    text = STUCK.replace("WAY", doing).replace("ODD", "1")
    found = on_deadline(run(text, deadline_s=4.0, collective_timeout_s=60.0))
    assert (found.outcome, found.rank, found.operation) == ("invalid", 1, "all_reduce"), found
    stuck, waiting = found.seen["rank 1"], found.seen["rank 0"]
    assert "in stuck" in stuck
    assert state in stuck
    assert waiting.startswith("waited for rank 1 in all_reduce SUM of 1 float32"), waiting
    assert "in train" in waiting
    assert "; rank 1: stood at script.py:" in found.reason


@pytest.mark.parametrize("way", WAYS)
def test_when_the_others_give_up_the_stuck_rank_is_named_with_the_line_it_stands_at(run: Run, way: str) -> None:
    doing, _ = WAYS[way]
    history = run(STUCK.replace("WAY", doing).replace("ODD", "1"), collective_timeout_s=1.0)
    assert history.outcome.duration_s < 10.0, "torchrun would wait 30 s for a stopped process to end"
    (cause,) = diagnose(history)
    assert (cause.how, cause.rank) == ("hang", 1), cause
    assert "in stuck" in cause.detail


@pytest.mark.parametrize("odd", [0, 2])
def test_three_against_one_whichever_is_read_first(run: Run, odd: int) -> None:
    text = STUCK.replace("WAY", LOOP).replace("ODD", str(odd))
    found = on_deadline(run(text, ranks=4, deadline_s=5.0, collective_timeout_s=60.0))
    others = ", ".join(str(rank) for rank in range(4) if rank != odd)
    assert found.rank == odd
    assert found.seen[f"ranks {others}"].startswith(f"waited for rank {odd} in all_reduce")


def test_one_against_three_that_are_stuck_names_nobody_and_shows_both_places(run: Run) -> None:
    text = STUCK.replace("WAY", LOOP).replace("rank == odd", "rank != 3")
    found = on_deadline(run(text.replace("ODD", "3"), ranks=4, deadline_s=5.0, collective_timeout_s=60.0))
    assert found.rank is None
    assert "in stuck" in found.seen["ranks 0, 1, 2"]
    assert found.seen["rank 3"].startswith("waited for ranks 0, 1, 2 in all_reduce")


def test_in_a_circle_of_waits_the_one_that_is_not_where_most_are_is_named(run: Run) -> None:
    """Rank 0 asks rank 1 in a group of the two, and rank 1 is with all others in the group of all."""
    text = """
dist.init_process_group("gloo")
pair = dist.new_group([0, 1])
dist.all_reduce(torch.ones(1))
if rank == 0:
    dist.all_reduce(torch.ones(3), group=pair)
dist.all_reduce(torch.ones(2))
"""
    found = on_deadline(run(text, ranks=4, deadline_s=5.0, collective_timeout_s=60.0))
    assert found.rank == 0, found
    assert found.seen["rank 0"].startswith("waited for rank 1 in all_reduce SUM of 3 float32")
    assert found.seen["ranks 1, 2, 3"].startswith("waited for rank 0 in all_reduce SUM of 2 float32")


def test_a_rank_that_stays_away_from_the_rendezvous_is_absent_and_its_line_is_shown(run: Run) -> None:
    text = "def stays_away():\n    while True: pass\nif rank == 0: stays_away()\ndist.init_process_group('gloo')\n"
    found = on_deadline(run(text, deadline_s=4.0, collective_timeout_s=60.0))
    assert (found.rank, found.operation) == (0, "init_process_group")
    assert found.seen["absent"] == [0]
    assert "in stays_away" in found.seen["rank 0"]
    assert "waited in init_process_group" in found.seen["rank 1"]


def test_a_rank_that_cannot_answer_is_said_to_have_no_evidence(run: Run) -> None:
    text = STUCK.replace("WAY", f"signal.signal({STACKS_SIGNAL}, signal.SIG_IGN); signal.pause()")
    found = on_deadline(run(text.replace("ODD", "1"), deadline_s=4.0, collective_timeout_s=60.0))
    assert found.rank == 1
    assert "no evidence: asked for its stacks, it wrote none" in found.seen["rank 1"]


def test_a_rank_in_python_code_adds_its_flight_record(run: Run, tmp_path: Path) -> None:
    text = """
import signal
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
if rank == 1:
    work = dist.all_reduce(torch.ones(2), async_op=True)
signal.pause()
"""
    history = run(text, deadline_s=4.0, collective_timeout_s=60.0)
    found = on_deadline(history)
    assert "unfinished in its flight record: all_reduce, number 2 of group 0" in found.seen["rank 1"], found.seen
    entries = json.loads((tmp_path / history.plan.name / "rank-1" / "flight-0.json").read_text())["entries"]
    assert [entry["retired"] for entry in entries] == [True, False]


# -- errors that leave a backward pass -----------------------------------------------------------------------------

BACKWARD = """
import traceback
from torch.nn.parallel import DistributedDataParallel
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1
    @staticmethod
    def backward(ctx, grad):
        raise ValueError("mine")
def hook(grad):
    raise KeyError("mine")
dist.init_process_group("gloo")
torch.manual_seed(0)
layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
model = DistributedDataParallel(layers, bucket_cap_mb=1e-5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    inputs = torch.randn(3, 4)
    outputs = model(inputs)
    if step == 2 and rank == 1:
        WAY
    outputs.sum().backward()
    optimizer.step()
"""
RAISING = {
    "a function of the script's own": "outputs = Own.apply(outputs)",
    "one that runs after all buckets are on their way": "outputs = model(Own.apply(inputs.requires_grad_()))",
    "a hook of the script's own": "layers[0].weight.register_hook(hook)",
    "autograd itself, before any bucket": "outputs = outputs.exp(); outputs.add_(1)",
    "autograd itself, after all buckets": "x = inputs.requires_grad_().exp(); outputs = model(x * 1); x.add_(1)",
}


@pytest.mark.parametrize("way", RAISING)
def test_an_error_of_the_backward_pass_itself_is_the_ranks_own(run: Run, way: str) -> None:
    history = run(BACKWARD.replace("WAY", RAISING[way]))
    mine = history.of(Kind.EXCEPTION, rank=1, restart=0)
    assert [e.data["in_collective"] for e in mine] == [False]
    (cause,) = diagnose(history)
    assert (cause.how, cause.rank, cause.step) == ("exception", 1, 3), cause


def test_an_error_of_a_bucket_in_the_backward_pass_is_one_of_communication(run: Run) -> None:
    history = run(BACKWARD.replace("WAY", "import signal; signal.pause()"), collective_timeout_s=1.0)
    assert [e.data["in_collective"] for e in history.of(Kind.EXCEPTION, rank=0, restart=0)] == [True]
    (cause,) = diagnose(history)
    assert (cause.how, cause.rank, cause.step) == ("hang", 1, 3), cause
