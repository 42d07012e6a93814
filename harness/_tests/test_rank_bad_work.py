"""Real ranks: a backward, an update, a save or a load that a fault leaves out or does otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness._tests.launched import Run, shown
from harness.faults import At
from harness.faults.drift_buffer import DriftBuffer
from harness.faults.flip_bit import FlipBit
from harness.faults.overflow import Overflow
from harness.faults.scale_lr import ScaleLr
from harness.faults.skip_backward import SkipBackward
from harness.faults.skip_load import SkipLoad
from harness.faults.skip_save import SkipSave
from harness.faults.skip_unscale import SkipUnscale
from harness.faults.skip_update import SkipUpdate
from harness.faults.work import WorkFault
from harness.history import History
from harness.wire import Event, Kind

TRAIN = """
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)).to({dtype})
ddp = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
x = torch.arange(12.0).reshape(3, 4).to({dtype})
lrs = []
for _ in range(4):
    optimizer.zero_grad()
    ddp(x).sum().backward()
    optimizer.step()
    lrs.append(optimizer.param_groups[0]["lr"])
show(lrs=lrs, values=[float(p.flatten()[0]) for p in model.parameters()])
del ddp
dist.destroy_process_group()
"""
AT_2 = At(step=2)


def train(run: Run, *faults: WorkFault, dtype: str = "torch.float32") -> History:
    history = run(TRAIN.format(dtype=dtype), *faults)
    assert history.outcome.exit_code == 0
    return history


def updates(history: History, what: str, rank: int = 1) -> list[Any]:
    return [e.data[what] for e in history.of(Kind.UPDATE, rank=rank)]


def effect(history: History) -> dict[str, Any]:
    (found,) = history.of(Kind.EFFECT)
    return dict(found.data)


def proof(history: History) -> str | None:
    (fired,) = history.of(Kind.FAULT)
    after: list[Event] = [e for e in history.of(rank=fired.rank) if e.seq > fired.seq]
    return history.plan.faults[0].missing_effect(fired, after)


def first_other(mine: list[Any], theirs: list[Any]) -> int:
    """The first update, from 1, after which they differ."""
    return next((n for n, (a, b) in enumerate(zip(mine, theirs, strict=True), 1) if a != b), 0)


# -- updates -------------------------------------------------------------------------------------------------------


def test_an_update_that_is_left_out_is_counted_and_changes_nothing(run: Run) -> None:
    history = train(run, SkipUpdate(rank=1, at=AT_2))
    params = updates(history, "params")
    assert params[0] == params[1] != params[2]
    assert first_other(params, updates(history, "params", rank=0)) == 2
    assert [e.step for e in history.of(Kind.UPDATE, rank=1)] == [1, 2, 3, 4]
    assert proof(history) is None


def test_another_learning_rate_is_that_of_one_update(run: Run, tmp_path: Path) -> None:
    history = train(run, ScaleLr(rank=1, factor=2.0, at=AT_2))
    assert updates(history, "lr") == [[0.5], [1.0], [0.5], [0.5]]
    assert shown(tmp_path, history, 1)["lrs"] == [0.5] * 4
    assert first_other(updates(history, "params"), updates(history, "params", rank=0)) == 2
    assert proof(history) is None


PARTS = {
    "the first parameter": ({}, "params", "parameter 0.weight"),
    "its sign": ({"bit": 31}, "params", "parameter 0.weight"),
    "a parameter by its name": ({"name": "2.bias"}, "params", "parameter 2.bias"),
    "the first moments": ({"part": "optimizer"}, "optimizer", "optimizer exp_avg"),
    "a number without dimensions": ({"part": "optimizer", "name": "step"}, "optimizer", "optimizer step"),
    "an element further on": ({"index": 31, "bit": 7}, "params", "parameter 0.weight"),
}


@pytest.mark.parametrize(("fields", "what", "tensor"), PARTS.values(), ids=PARTS)
def test_a_flipped_bit_shows_after_that_update(run: Run, fields: dict[str, Any], what: str, tensor: str) -> None:
    history = train(run, FlipBit(rank=1, at=AT_2, **fields))
    assert first_other(updates(history, what), updates(history, what, rank=0)) == 2
    assert effect(history)["tensor"] == tensor
    assert proof(history) is None


KEEPS = """
class Keeps(torch.optim.AdamW):
    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p].setdefault("history", []).append(p.grad.clone())
                self.state[p].setdefault("blocks", {"row": (torch.ones(2), 3)})
        self.state.setdefault("all", {"norm": torch.ones(1)})
"""
INNER = {
    "the second gradient of a history": "history[1]",
    "a tensor in a tuple in a table": "blocks['row'][0]",
    "what is kept beside all parameters": "all['norm']",
}


@pytest.mark.parametrize("name", INNER.values(), ids=INNER)
def test_a_flipped_bit_in_a_container_of_an_optimizer_shows_after_that_update(run: Run, name: str) -> None:
    text = KEEPS + TRAIN.format(dtype="torch.float32").replace("torch.optim.AdamW(", "Keeps(")
    history = run(text, FlipBit(rank=1, at=AT_2, part="optimizer", name=name, bit=31))
    assert first_other(updates(history, "optimizer"), updates(history, "optimizer", rank=0)) == 2
    assert effect(history)["tensor"] == f"optimizer {name}"
    assert proof(history) is None


@pytest.mark.parametrize(("dtype", "bit"), [("torch.bfloat16", 15), ("torch.float64", 63), ("torch.float64", 52)])
def test_the_bits_of_other_types(run: Run, dtype: str, bit: int) -> None:
    history = train(run, FlipBit(rank=1, at=AT_2, bit=bit), dtype=dtype)
    assert proof(history) is None
    if bit != 52:  # the sign
        before, after = effect(history)["values"].split(" became ")
        assert float(before) == -float(after)


NOT_THERE = {
    "a parameter": ({"name": "3.weight"}, "no parameter tensor named '3.weight'; there are: 0.weight, 0.bias"),
    "a state": ({"part": "optimizer", "name": "momentum"}, "there are: exp_avg, exp_avg_sq, step"),
    "a bit": ({"bit": 32}, "no bit 32 of element 0 in parameter 0.weight: it has 32 elements of 32 bits"),
    "an element": ({"index": 32}, "no bit 0 of element 32"),
}


@pytest.mark.parametrize(("fields", "said"), NOT_THERE.values(), ids=NOT_THERE)
def test_what_is_not_there_is_said(run: Run, fields: dict[str, Any], said: str) -> None:
    assert said in (proof(train(run, FlipBit(rank=1, at=AT_2, **fields))) or "")


@pytest.mark.parametrize("name", [None, "1.running_var"])
def test_a_drifting_buffer(run: Run, name: str | None) -> None:
    history = train(run, DriftBuffer(rank=1, at=At(step=4), amount=0.25, name=name))
    assert first_other(updates(history, "buffers"), updates(history, "buffers", rank=0)) == 4
    assert effect(history)["tensor"] == f"buffer {name or '1.running_mean'}"
    assert proof(history) is None


def test_an_integer_buffer_does_not_drift(run: Run) -> None:
    history = train(run, DriftBuffer(rank=1, at=AT_2, name="1.num_batches_tracked"))
    assert "no floating-point buffer named '1.num_batches_tracked'; there are: 1.running_mean" in (proof(history) or "")


# -- backward ------------------------------------------------------------------------------------------------------


def test_a_backward_that_is_left_out_sends_nothing(run: Run) -> None:
    history = run(TRAIN.format(dtype="torch.float32"), SkipBackward(rank=1, at=AT_2))
    sent = [[e for e in history.of(Kind.COLLECTIVE, rank=r) if (e.step, e.phase) == (2, "backward")] for r in (0, 1)]
    assert len(sent[0]) > 0
    assert not sent[1]
    assert proof(history) is None


@pytest.mark.parametrize("gradient", ["reduced", "local"])
def test_an_overflow_reaches_whom_it_says(run: Run, tmp_path: Path, gradient: Any) -> None:
    text = """
dist.init_process_group("gloo")
model = torch.nn.Linear(4, 1)
ddp = torch.nn.parallel.DistributedDataParallel(model)
ddp(torch.ones(2, 4)).sum().backward()
show(is_finite=bool(model.weight.grad.isfinite().all()))
del ddp
dist.barrier()
dist.destroy_process_group()
"""
    history = run(text, Overflow(rank=1, at=At(step=1), gradient=gradient))
    is_finite = [shown(tmp_path, history, rank)["is_finite"] for rank in (0, 1)]
    assert is_finite == [gradient == "reduced", False]
    assert effect(history)["gradients"] == 2
    assert proof(history) is None


def test_gradients_that_overflow_by_themselves_prove_nothing(run: Run) -> None:
    text = """
weight = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([weight], lr=0.1)
for scale in (1.0, float("inf")):
    optimizer.zero_grad()
    (weight * scale).sum().backward()
    optimizer.step()
"""
    history = run(text, Overflow(rank=1, at=At(step=2)))
    assert "it was not finite already" in (proof(history) or "")


SCALED = """
weight = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([weight], lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
seen = []
for _ in range(2):
    optimizer.zero_grad()
    scaler.scale(weight.sum()).backward()
    {unscale}
    seen.append(weight.grad.item())
    scaler.step(optimizer)
    scaler.update()
show(seen=seen, weight=weight.item())
"""


def test_gradients_that_are_not_unscaled_are_so_by_the_step(run: Run, tmp_path: Path) -> None:
    history = run(SCALED.format(unscale="scaler.unscale_(optimizer)"), SkipUnscale(rank=1, at=AT_2))
    assert shown(tmp_path, history, 0)["seen"] == [1.0, 1.0]
    assert shown(tmp_path, history, 1)["seen"] == [1.0, 1024.0]
    assert shown(tmp_path, history, 1)["weight"] == pytest.approx(0.8)
    assert proof(history) is None


def test_what_the_step_unscales_by_itself_is_not_left_out(run: Run) -> None:
    history = run(SCALED.format(unscale="pass"), SkipUnscale(rank=1, at=AT_2))
    assert history.outcome.exit_code == 0
    assert not history.of(Kind.FAULT)


# -- saves and loads -----------------------------------------------------------------------------------------------

STORE = """
from harness.checkpoint.store import CheckpointStore
store = CheckpointStore({place!r})
loaded = store.load()
{save}
show(step=saved.step, path=str(saved.path), loaded=None if loaded is None else loaded.step)
"""
SAVES = {
    "save": "saved = store.save(3, {'a': torch.ones(1)}, {})",
    "async_save": "saved = store.async_save(3, {'a': torch.ones(1)}, {}).result()",
}


@pytest.mark.parametrize("save", SAVES)
def test_a_save_that_is_left_out_looks_done_to_the_script(run: Run, tmp_path: Path, save: str) -> None:
    place = tmp_path / "kept"
    text = STORE.format(place=str(place), save=SAVES[save])
    history = run(text, SkipSave(rank=0, at=At(phase="save")), ranks=1)
    assert history.outcome.exit_code == 0
    assert shown(tmp_path, history, 0) == {"step": 3, "path": str(place / "step-3"), "loaded": None}
    assert not (place / "step-3").exists()
    assert proof(history) is None


def test_a_load_that_is_left_out_finds_nothing(run: Run, tmp_path: Path) -> None:
    text = STORE.format(place=str(tmp_path / "kept"), save=SAVES["save"])
    first = run(text, ranks=1)
    assert shown(tmp_path, run(text.replace(SAVES["save"], "saved = loaded"), ranks=1), 0)["loaded"] == 3
    alone = text.replace(SAVES["save"], "from pathlib import Path\nsaved = type('', (), {'step': 0, 'path': Path()})")
    history = run(alone, SkipLoad(rank=0, at=At(phase="load")), ranks=1)
    assert (first.outcome.exit_code, history.outcome.exit_code) == (0, 0)
    assert shown(tmp_path, history, 0)["loaded"] is None
    assert proof(history) is None


# -- nothing planned, nothing installed ----------------------------------------------------------------------------

WRAPPED = """
from harness.checkpoint.store import CheckpointStore
from torch.optim.optimizer import Optimizer
step = Optimizer.profile_hook_step
from torch.amp import GradScaler
places = [torch.autograd.backward.__wrapped__, GradScaler.unscale_, step, CheckpointStore.save, CheckpointStore.load]
show(wrapped=[place.__code__.co_filename.endswith("bad_work.py") for place in places])
"""
FAULTS: dict[str, tuple[WorkFault | None, list[bool]]] = {
    "none": (None, [False] * 5),
    "one of a backward": (SkipBackward(rank=1, at=AT_2), [True, False, False, False, False]),
    "one of a scaler": (SkipUnscale(rank=1, at=AT_2), [False, True, False, False, False]),
    "one of an update": (SkipUpdate(rank=1, at=AT_2), [False, False, True, False, False]),
    "one of a save": (SkipSave(rank=1, at=AT_2), [False, False, False, True, True]),
}


@pytest.mark.parametrize(("fault", "wrapped"), FAULTS.values(), ids=FAULTS)
def test_only_the_places_of_planned_faults_are_wrapped(
    run: Run, tmp_path: Path, fault: WorkFault | None, wrapped: list[bool]
) -> None:
    history = run(WRAPPED, *([] if fault is None else [fault]))
    assert shown(tmp_path, history, 1)["wrapped"] == wrapped
    assert shown(tmp_path, history, 0)["wrapped"] == [False] * 5
