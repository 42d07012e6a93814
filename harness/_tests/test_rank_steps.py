"""Real ranks: steps, phases, digests and resume steps of scripts that say none of these things."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness._tests.launched import RESUME, SAVE, Run, shown
from harness.faults.base import At
from harness.faults.exit import Exit
from harness.faults.kill import Kill
from harness.faults.scale_lr import ScaleLr
from harness.history import History
from harness.wire import Kind

MODEL = """
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
ddp = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
x = torch.arange(12.0).reshape(3, 4) + rank
def update():
    optimizer.zero_grad()
    ddp(x).sum().backward()
    optimizer.step()
"""
END = """
del ddp
dist.destroy_process_group()
"""


def phases(history: History, rank: int = 0) -> list[tuple[int, str]]:
    return [(e.step, e.phase) for e in history.of(Kind.PHASE, rank=rank, restart=0)]


def test_two_updates_and_an_evaluation_between_them(run: Run) -> None:
    history = run(MODEL + "update()\nmodel.eval()\nwith torch.no_grad():\n    model(x)\nmodel.train()\nupdate()" + END)
    assert history.outcome.exit_code == 0
    assert phases(history) == [
        (1, "forward"),
        (1, "backward"),
        (1, "optimizer_step"),
        (1, "eval"),
        (2, "forward"),
        (2, "backward"),
        (2, "optimizer_step"),
        (2, "teardown"),
    ]


def test_accumulated_batches_are_one_update(run: Run) -> None:
    history = run(
        MODEL
        + """
for micro in range(3):
    ddp(x).sum().backward()
optimizer.step()
"""
        + END
    )
    assert [e.step for e in history.of(Kind.UPDATE, rank=1, restart=0)] == [1]
    assert {step for step, _ in phases(history)} == {1}


def test_replicas_have_equal_parameters_and_their_own_buffers(run: Run) -> None:
    history = run(MODEL + "update()\nupdate()" + END)
    ours, theirs = (history.of(Kind.UPDATE, rank=rank, restart=0) for rank in (0, 1))
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.data["params"] == other.data["params"]
        assert mine.data["optimizer"] == other.data["optimizer"]
        assert mine.data["buffers"] != other.data["buffers"]  # local batch statistics, until the next forward
    assert ours[0].data["params"] != ours[1].data["params"]


def test_the_state_before_the_first_update_and_at_the_end_is_recorded(run: Run) -> None:
    history = run(MODEL + "update()" + END)
    (state,), (end,) = (history.of(kind, rank=0, restart=0) for kind in (Kind.STATE, Kind.EXIT))
    (update,) = history.of(Kind.UPDATE, rank=0, restart=0)
    assert state.step == 0
    assert state.data["params"] != update.data["params"]
    # The model is gone by then; its end state is not.
    assert {k: end.data[k] for k in ("params", "optimizer", "buffers")} == {
        k: update.data[k] for k in ("params", "optimizer", "buffers")
    }


RESUMABLE = (
    MODEL
    + RESUME
    + """
while done < 8:
    update()
    done += 1
    if done % 3 == 0 and rank == 0:"""
    + SAVE
    + """
    dist.barrier()
"""
)


def test_the_step_of_a_resumed_script_is_found_from_its_state(run: Run) -> None:
    fault = Kill(rank=1, at=At(step=5, phase="backward"))
    history = run(RESUMABLE + END, fault, args=("{checkpoints}",), max_restarts=1)
    assert history.outcome.exit_code == 0
    for rank in history.ranks:
        (state,) = history.of(Kind.STATE, rank=rank, restart=1)
        assert (state.step, state.data["matched_step"], state.data["claimed_step"]) == (3, 3, None)
        assert [e.step for e in history.of(Kind.UPDATE, rank=rank, restart=1)] == [4, 5, 6, 7, 8]


def test_a_fault_at_a_step_of_the_resumed_script_hits_that_step(run: Run) -> None:
    faults = (Kill(rank=1, at=At(step=5)), Kill(rank=0, at=At(step=7, phase="optimizer_step", restart=1)))
    history = run(RESUMABLE + END, *faults, args=("{checkpoints}",), max_restarts=2)
    assert history.outcome.exit_code == 0
    assert [(e.rank, e.restart, e.step) for e in history.of(Kind.FAULT)] == [(1, 0, 5), (0, 1, 7)]
    assert [e.step for e in history.of(Kind.STATE, rank=0)] == [0, 3, 6]


def test_a_rank_whose_own_state_had_come_to_differ_resumes_at_the_step_of_the_one_that_saved(run: Run) -> None:
    faults = (ScaleLr(rank=1, at=At(step=2), factor=2.0), Kill(rank=1, at=At(step=5, phase="backward")))
    history = run(RESUMABLE + END, *faults, args=("{checkpoints}",), max_restarts=1)
    for rank in history.ranks:
        (state,) = history.of(Kind.STATE, rank=rank, restart=1)
        assert (state.step, state.data["matched_step"]) == (3, 3)


@pytest.mark.parametrize("phase", ["init", "forward", "backward", "optimizer_step", "save", "load", "teardown"])
def test_a_fault_fires_in_each_phase_that_a_script_passes(run: Run, phase: str) -> None:
    step = {"init": 0, "load": 3, "save": 6, "teardown": 8}.get(phase, 4)
    restart = 1 if phase == "load" else 0
    at = At(step=None if phase == "load" else step, phase=phase, restart=restart)  # type: ignore[arg-type]
    rank = 0 if phase == "save" else 1  # this script saves on rank 0 only
    first = (Kill(rank=0, at=At(step=5)),) if restart else ()
    history = run(
        RESUMABLE + END, *first, Exit(rank=rank, code=7, at=at), args=("{checkpoints}",), max_restarts=restart
    )
    fired = history.of(Kind.FAULT, rank=rank, restart=restart)[-1]
    assert (fired.rank, fired.phase) == (rank, phase)
    assert fired.step == (0 if phase == "load" else step)  # before the load nothing says where the script is
    assert history.of(rank=rank, restart=restart)[-1].kind in (Kind.FAULT, Kind.EXIT)
    assert history.outcome.exit_code != 0


def test_the_step_that_distributed_checkpointing_makes_on_a_fresh_optimizer_is_no_update(run: Run) -> None:
    history = run(
        MODEL
        + """
from torch.distributed.checkpoint.state_dict import get_state_dict
get_state_dict(model, optimizer)
update()
"""
        + END
    )
    assert history.outcome.exit_code == 0
    assert [e.step for e in history.of(Kind.UPDATE, rank=0, restart=0)] == [1]


def test_a_second_optimizer_makes_no_further_updates_but_is_in_the_digest(run: Run) -> None:
    history = run(
        MODEL
        + """
other = torch.nn.Linear(2, 2)
second = torch.optim.SGD(other.parameters(), lr=float(rank))
for _ in range(2):
    update()
    other(torch.ones(1, 2)).sum().backward()
    second.step()
"""
        + END
    )
    ours, theirs = (history.of(Kind.UPDATE, rank=rank, restart=0) for rank in (0, 1))
    assert [e.step for e in ours] == [1, 2]
    assert ours[1].data["params"] != theirs[1].data["params"]  # their learning rates differ


def test_a_script_that_leaves_by_os_exit_has_its_end_state_on_record(run: Run) -> None:
    history = run(MODEL + "update()\nos._exit(0)\n")
    (end,) = history.of(Kind.EXIT, rank=0)
    (update,) = history.of(Kind.UPDATE, rank=0)
    assert end.data["at_once"]
    assert end.data["params"] == update.data["params"]


INNER = """
class Logging(torch.optim.SGD):
    fails = False
    def step(self, closure=None):
        if self.fails:
            raise ArithmeticError
        return super().step(closure)
torch.optim.SGD(model.parameters(), lr=0.1)  # whose hooks torch puts around SGD.step as well
optimizer = Logging(model.parameters(), lr=0.1)
"""


def test_a_step_that_calls_the_step_of_its_base_class_is_one_update(run: Run) -> None:
    history = run(MODEL + INNER + "update()\nupdate()" + END)
    assert [e.step for e in history.of(Kind.UPDATE, rank=0, restart=0)] == [1, 2]


def test_a_step_that_raised_and_was_tried_again_is_one_update(run: Run) -> None:
    again = """
update()
optimizer.fails = True
try:
    update()
except ArithmeticError:
    optimizer.fails = False
update()
"""
    history = run(MODEL + INNER + again + END)
    assert [e.step for e in history.of(Kind.UPDATE, rank=0, restart=0)] == [1, 2]


FORKING = """
def leaves(code):
    WAY
pid = os.fork()
if pid == 0:
    leaves(7)
show(code=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.parametrize("way", ["os._exit(code)", "sys.exit(code)", "raise ValueError(code)"])
def test_a_child_that_a_script_forks_leaves_at_once_and_is_not_the_rank(run: Run, tmp_path: Path, way: str) -> None:
    """Torch's threads are not forked: whatever the child computed with them would wait for ever."""
    big = MODEL.replace("Linear(4, 8)", "Linear(4, 8), torch.nn.Linear(8, 8_000), torch.nn.Linear(8_000, 8)")
    history = run(big + "update()\n" + FORKING.replace("WAY", way) + END, env={"OMP_NUM_THREADS": "2"})
    assert history.outcome.exit_code == 0
    assert shown(tmp_path, history, 0) == {"code": 1 if "ValueError" in way else 7}
    assert [e.data["code"] for e in history.of(Kind.EXIT, rank=0, restart=0)] == [0]


def test_after_the_second_optimizers_part_the_script_is_between_updates(run: Run) -> None:
    history = run(
        MODEL
        + """
other = torch.nn.Linear(2, 2)
second = torch.optim.SGD(other.parameters(), lr=0.1)
update()
other(torch.ones(1, 2)).sum().backward()
second.step()
dist.barrier()
"""
        + END
    )
    (barrier,) = (e for e in history.of(Kind.COLLECTIVE, rank=1) if e.data["op"] == "barrier")
    assert (barrier.step, barrier.phase) == (1, "optimizer_step")


def test_a_sharded_model_says_so(run: Run) -> None:
    history = run(
        """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
model = torch.nn.Linear(4, 4)
fully_shard(model, mesh=init_device_mesh("cpu", (world_size,)))
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(1, 4)).sum().backward()
optimizer.step()
dist.destroy_process_group()
"""
    )
    assert history.outcome.exit_code == 0
    assert [e.data["sharded"] for e in history.of(Kind.UPDATE)] == [True, True]


SCALED = """
scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
for _ in range(4):
    optimizer.zero_grad()
    scaler.scale(ddp(x).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def test_the_scale_of_each_update_is_on_record(run: Run) -> None:
    history = run(MODEL + SCALED + END)
    assert history.outcome.exit_code == 0
    scalers = [e.data["scaler"] for e in history.of(Kind.UPDATE, rank=0)]
    assert scalers == [[[8.0, 0]], [[8.0, 1]], [[16.0, 0]], [[16.0, 1]]]


@pytest.mark.parametrize("scaler", ["", "scaler = torch.amp.GradScaler('cpu', enabled=False)\n"])
def test_without_a_scaler_in_use_there_is_none(run: Run, scaler: str) -> None:
    history = run(MODEL + scaler + "update()\n" + END)
    assert [e.data["scaler"] for e in history.of(Kind.UPDATE, rank=0)] == [None]


TWO_MODELS = """
dist.init_process_group("gloo")
torch.manual_seed(0)
encoder = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8))
decoder = torch.nn.Sequential(torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
x = torch.arange(12.0).reshape(3, 4) + rank
path = os.path.join(sys.argv[1], f"{rank}.pt")
os.makedirs(sys.argv[1], exist_ok=True)
done = 0
if os.path.exists(path):
    saved = torch.load(path)
    encoder.load_state_dict(saved["encoder"])
    done = saved["done"]
    decoder.load_state_dict(saved["decoder"])
    CHANGE
while done < 6:
    optimizer.zero_grad()
    decoder(encoder(x)).sum().backward()
    optimizer.step()
    done += 1
    if done == 3:
        torch.save({"encoder": encoder.state_dict(), "decoder": decoder.state_dict(), "done": done}, path)
    dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("change", "is_exact"),
    [
        pytest.param("pass", True, id="all is restored"),
        pytest.param("encoder[1].running_mean.zero_()", False, id="but for a buffer of the first"),
        pytest.param("decoder[0].running_mean.zero_()", False, id="but for a buffer of the second"),
    ],
)
def test_all_models_that_a_forward_pass_calls_are_known(run: Run, change: str, is_exact: bool) -> None:
    fault = Kill(rank=1, at=At(step=5, phase="backward"))
    history = run(TWO_MODELS.replace("CHANGE", change), fault, args=("{checkpoints}",), max_restarts=1)
    assert history.outcome.exit_code == 0
    (saved,) = (e for e in history.of(Kind.UPDATE, rank=0, restart=0) if e.step == 3)
    (loaded,) = history.of(Kind.STATE, rank=0, restart=1)
    assert loaded.step == 3
    assert loaded.data["params"] == saved.data["params"]
    assert (loaded.data["buffers"] == saved.data["buffers"]) == is_exact
