"""Real ranks, whose gradients are compared with those of one process in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness._tests.launched import Run, shown
from harness._tests.workload_runs import WORKLOADS, Changes, Ran, run_workload
from harness.checks import GUARANTEES, Verdict
from harness.faults.base import At
from harness.faults.kill import Kill
from harness.scenario import Gradient
from harness.wire import GENERATORS, Kind

LM, CLASSES = (str(WORKLOADS / "losses" / name) for name in ("lm_tokens.py", "classes.py"))

MEAN = "mean = (weight_H * sum_H / num_targets_H.clamp(min=1)).sum()"
BACKWARD = "(world_size * mean).backward()"
COUNTED = ("        dist.all_reduce(num_targets_H)\n", "")
COUNTS = "torch.stack([(x != no_target).sum() for x in (batch.target_BT, batch.topic_B)])"
SYNC = "with contextlib.nullcontext() if number == len(window) else ddp.no_sync():"
FORWARD = "sum_H = ddp(batch)"


def run_with(
    run: Run, tmp_path: Path, workload: str, *args: str, losses: str, changes: Changes = (), **plan: Any
) -> tuple[Ran, Verdict]:
    fields = {name: plan.pop(name) for name in ("updates", "tolerance", "clip_norm") if name in plan}
    ran = run_workload(
        run, tmp_path, workload, *args, changes=changes, gradient=Gradient(losses=losses, **fields), **plan
    )
    return ran, GUARANTEES["GradientRight"].check(ran.history, None)


def run_lm(run: Run, tmp_path: Path, *changes: tuple[str, str], **plan: Any) -> Verdict:
    return run_with(run, tmp_path, "lm_tokens", "--steps", "3", losses=LM, changes=changes, **plan)[1]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_healthy_workload_is_right_in_its_short_windows_too(run: Run, tmp_path: Path, ranks: int) -> None:
    _, found = run_with(run, tmp_path, "lm_tokens", "--steps", "10", losses=LM, ranks=ranks, updates=(1, 2, 6, 9, 10))
    assert found.outcome == "valid", found
    assert "of 5 updates" in found.reason
    assert found.seen["heads"] == ["next token", "topic"]


MISTAKES: dict[str, tuple[Changes, str]] = {
    "each rank divides by its own targets": ([COUNTED, (BACKWARD, "mean.backward()")], "the mean of the ranks' means"),
    "each micro-batch has its own mean": (
        [
            COUNTED,
            (MEAN, f"mean = (weight_H * sum_H / {COUNTS}.clamp(min=1)).sum() / len(window)"),
            (BACKWARD, "mean.backward()"),
        ],
        "the mean of the micro-batches' means",
    ),
    "and is not divided by their number": (
        [
            COUNTED,
            (MEAN, f"mean = (weight_H * sum_H / {COUNTS}.clamp(min=1)).sum()"),
            (BACKWARD, "mean.backward()"),
        ],
        "the sum of the micro-batches' means",
    ),
    "the number of ranks is forgotten": ([(BACKWARD, "mean.backward()")], "divided by the number of ranks once more"),
    "nothing is divided": ([(MEAN, "mean = (weight_H * sum_H).sum()")], "divided by nothing"),
    "one count for both heads": (
        [(MEAN, "mean = (weight_H * sum_H / num_targets_H[0].clamp(min=1)).sum()")],
        "divided by the number of targets of 'next token'",
    ),
    "a head is left out": (
        [(MEAN, "mean = (weight_H * sum_H / num_targets_H.clamp(min=1))[0]")],
        "the head 'topic' is missing",
    ),
    "every backward pass in no_sync": ([(SYNC, "with ddp.no_sync():")], "not reduced among the ranks"),
    "forward in no_sync and backward outside": (
        [
            (SYNC, "with ddp.no_sync():"),
            (f"                {BACKWARD}", f"            {BACKWARD}"),
        ],
        "not reduced among the ranks",
    ),
    "the model is called without DDP": ([(FORWARD, "sum_H = model(batch)")], "not reduced among the ranks"),
    "zeroed at each micro-batch": (
        [(FORWARD, f"optimizer.zero_grad(); {FORWARD}")],
        "the last micro-batches alone",
    ),
    "zeroed once only": (
        [("        optimizer.zero_grad()\n", "        optimizer.zero_grad() if step == 0 else None\n")],
        "that of the update before",
    ),
    "rank 1 has no part": (
        [(BACKWARD, "(world_size * mean * (rank == 0)).backward()")],
        "rank 1's samples are missing",
    ),
}


@pytest.mark.parametrize(("changes", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_by_the_gradients_value(run: Run, tmp_path: Path, changes: Changes, words: str) -> None:
    found = run_lm(run, tmp_path, *changes)
    assert found.outcome == "invalid"
    assert words in found.reason, found.reason
    assert found.step == (2 if "before" in words else 1)


def test_more_synchronisation_than_needed_is_no_mistake(run: Run, tmp_path: Path) -> None:
    assert run_lm(run, tmp_path, (SYNC, "with contextlib.nullcontext():")).outcome == "valid"


def test_ranks_with_equal_samples_that_reduce_nothing_are_found_by_what_was_sent(run: Run, tmp_path: Path) -> None:
    alike = [
        ("sampler = ResumableSampler(dataset", "sampler = ResumableSampler(dataset, 1, 0"),
        ("seed_rng(args.seed + 1 + rank)", "seed_rng(args.seed + 1)"),
    ]
    assert run_lm(run, tmp_path, *alike).outcome == "valid"
    found = run_lm(run, tmp_path, *alike, (SYNC, "with ddp.no_sync():"), (BACKWARD, "mean.backward()"), COUNTED)
    assert (found.outcome, found.rank, found.step, found.operation) == ("invalid", 0, 1, "all_reduce")


@pytest.mark.parametrize("workload", ["ddp_mlp", "ddp_digits", "batch_norm"])
def test_dropout_and_batch_statistics_are_those_of_the_run(run: Run, tmp_path: Path, workload: str) -> None:
    ran, found = run_with(run, tmp_path, workload, "--steps", "4", losses=CLASSES, updates=(1, 2, 3, 4))
    assert found.outcome == "valid", found
    events = ran.history.of(Kind.GRADIENT)
    assert len(events) == 8
    assert all(part["has_drawn"] for event in events for part in event.data["parts"])


SCALER: dict[str, Any] = {"losses": CLASSES, "tolerance": 2e-2, "clip_norm": 1.0}
UNSCALE = "        scaler.unscale_(optimizer)  # before clipping: else the norm is that of the scale\n"


def test_scaled_and_clipped_gradients_are_right_in_half_precision(run: Run, tmp_path: Path) -> None:
    ran, found = run_with(run, tmp_path, "mixed_precision", "--steps", "8", "--clip-norm", "1", **SCALER)
    assert found.outcome == "valid", found
    found = run_with(
        run, tmp_path, "mixed_precision", "--steps", "8", "--clip-norm", "1", changes=[(UNSCALE, "")], **SCALER
    )[1]
    assert found.outcome == "invalid"
    assert "are gradients unscaled before they are clipped" in found.reason
    assert ran.history.outcome.exit_code == 0


def test_after_a_restart_the_first_updates_are_looked_at_again(run: Run, tmp_path: Path) -> None:
    kill = Kill(rank=1, at=At(step=8, phase="backward"))
    ran, found = run_with(
        run, tmp_path, "ddp_mlp", "--steps", "12", "--save-every", "5", losses=CLASSES, faults=[kill], max_restarts=1
    )
    assert found.outcome == "valid"
    places = {(event.restart, event.step) for event in ran.history.of(Kind.GRADIENT)}
    assert places == {(0, 1), (0, 2), (1, 6), (1, 7)}


def test_training_is_not_changed_by_looking(run: Run, tmp_path: Path) -> None:
    ends = []
    for gradient in (None, Gradient(losses=LM, updates=(1, 2, 3, 4))):
        ran = run_workload(run, tmp_path, "lm_tokens", "--steps", "5", gradient=gradient)
        parts = ("params", "optimizer", *GENERATORS)
        ends.append([[event.data[part] for part in parts] for event in ran.history.of(Kind.UPDATE, rank=1)])
    assert ends[0] == ends[1]
    assert len(ends[0]) == 5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("raise KeyError('x')", "KeyError: 'x'", id="it cannot be read"),
        pytest.param("def loss(model, batch): ...", "has no function losses(model, batch)", id="it has no losses"),
        pytest.param(
            "def losses(model, batch): return {'a': (model(batch[0]).sum(),)}", "wanted is (sum, count)", id="no count"
        ),
        pytest.param("def losses(model, batch): return model(batch)", "TypeError", id="another batch than it thinks"),
    ],
)
def test_losses_that_fail_are_told_and_training_goes_on(run: Run, tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "losses.py"
    file.write_text(text)
    ran, found = run_with(run, tmp_path, "ddp_mlp", "--steps", "3", losses=str(file))
    assert ran.history.outcome.exit_code == 0
    assert found.outcome == "unknown"
    assert words in found.reason


def test_an_update_that_a_scaler_leaves_out_uses_no_samples(run: Run, tmp_path: Path) -> None:
    ran, found = run_with(
        run,
        tmp_path,
        "mixed_precision",
        "--steps",
        "3",
        "--scale",
        "1e9",
        losses=CLASSES,
        tolerance=2e-2,
        updates=(1, 2),
    )
    skipped = ran.history.of(Kind.SKIPPED, rank=0)
    assert skipped
    assert [len(event.data["ids"]) for event in skipped] == [8] * len(skipped)
    assert [len(ran.sample_ids(0, step)) for step in (1, 2, 3)] == [8, 8, 8]
    assert found.outcome != "unknown", found


SMALL = """
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh()), torch.nn.Linear(8, 2)
    def forward(self, x):
        return self.head(checkpoint(lambda y: self.body[1](self.body[0](y)), x, use_reentrant=False))

dist.init_process_group("gloo")
torch.manual_seed(0)
dataset = TensorDataset(torch.randn(16, 4), torch.randint(2, (16,)))
loader = DataLoader(dataset, 2, sampler=DistributedSampler(dataset))
ddp = torch.nn.parallel.DistributedDataParallel(Model())
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(ddp(x), y)
    AGAIN
    loss.backward()
    optimizer.step()
del ddp, loss
dist.destroy_process_group()
"""


def run_small(run: Run, again: str = "pass", **gradient: Any) -> Verdict:
    history = run(SMALL.replace("AGAIN", again), gradient=Gradient(losses=CLASSES, **gradient))
    assert history.outcome.exit_code == 0
    return GUARANTEES["GradientRight"].check(history, None)


def test_what_is_computed_again_in_the_backward_pass_is_no_other_model(run: Run) -> None:
    assert run_small(run, updates=(1, 2, 3, 4)).outcome == "valid"


def test_a_model_that_is_called_more_often_than_losses_does_is_not_judged(run: Run) -> None:
    found = run_small(run, "loss = loss + ddp(x).square().mean()")
    assert found.outcome == "unknown"
    assert "the script calls its model 2 times in the update, losses() 1 times" in found.reason


def test_an_update_that_is_asked_for_and_never_comes_is_told(run: Run) -> None:
    found = run_small(run, updates=(1, 99))
    assert (found.outcome, found.reason) == ("unknown", "of gradient.updates, 99 did not come on all ranks")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param("(model(batch[0]).sum(), 0)", "a sum of", id="a count of 0"),
        pytest.param("(model(batch[0]).sum().detach(), 2)", "no gradient: is it detached?", id="detached"),
    ],
)
def test_losses_that_cannot_be_meant_accuse_nobody(run: Run, tmp_path: Path, given: str, words: str) -> None:
    file = tmp_path / "losses.py"
    file.write_text(f"def losses(model, batch): return {{'a': {given}}}")
    _, found = run_with(run, tmp_path, "ddp_mlp", "--steps", "3", losses=str(file))
    assert found.outcome == "unknown"
    assert words in found.reason


def test_of_a_head_of_two_classes_a_sum_in_place_of_a_mean_is_found(run: Run) -> None:
    """Its gradient is (d, -d): what is recorded of it must not cancel out, whatever the parameter is called."""
    loss = "torch.nn.functional.cross_entropy(ddp(x), y)"
    for name in ("head", "lin", "score2", "out_proj", "linear"):
        text = SMALL.replace("self.head", f"self.{name}").replace(
            loss, f"{loss} * (1 + (ddp.module.{name}.bias[0] < 9))"
        )
        history = run(text.replace("AGAIN", "pass"), gradient=Gradient(losses=CLASSES))
        found = GUARANTEES["GradientRight"].check(history, None)
        assert (found.outcome, found.step) == ("invalid", 1)
        assert f"{name}.bias" in found.seen["parameters"]


UNTOUCHED = """
import numpy, random, threading
from torch.utils.data import DataLoader

class Drawing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)
    def forward(self, x):
        return self.inner(x) * (1 + (random.random() < 0.5) + (numpy.random.rand() < 0.5))

class Locked:
    def __init__(self, x):
        self.x, self.lock = x, threading.Lock()

dist.init_process_group("gloo")
torch.manual_seed(0), random.seed(rank), numpy.random.seed(rank)
data = [(torch.randn(2), 0) for _ in range(8)]
ddp = torch.nn.parallel.DistributedDataParallel(Drawing())
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
drawn, types = [], set()
for batch in DataLoader(data, 2, collate_fn=COLLATE):
    x = batch.x if hasattr(batch, "x") else batch[0]
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(ddp(x), torch.zeros(2, dtype=torch.int64)).backward()
    optimizer.step()
    drawn.append([random.random(), numpy.random.rand(), torch.rand(()).item()])
show(drawn=drawn)
del ddp
dist.destroy_process_group()
"""
COLLATED = "lambda items: [torch.stack([x for x, _ in items]), torch.tensor([y for _, y in items])]"
LOCKED = "lambda items: Locked(torch.stack([x for x, _ in items]))"


@pytest.mark.parametrize(("collate", "outcome"), [(COLLATED, "valid"), (LOCKED, "unknown")], ids=["lists", "locked"])
def test_the_scripts_generators_go_on_as_if_nobody_had_looked(
    run: Run, tmp_path: Path, collate: str, outcome: str
) -> None:
    """Those of Python, numpy and torch, which the model itself draws from; and batches that nobody can copy."""
    text = UNTOUCHED.replace("COLLATE", collate)
    plain, looked_at = run(text), run(text, gradient=Gradient(losses=CLASSES))
    assert looked_at.outcome.exit_code == 0
    assert shown(tmp_path, plain, 1) == shown(tmp_path, looked_at, 1)
    assert GUARANTEES["GradientRight"].check(looked_at, None).outcome == outcome
