"""Saves that go on beside the training: what they hold, when they count, and how they fail."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoints_fixture.ranks import DEADLINE_S, all_of
from harness._tests.checkpoint_ranks import Witness, in_ranks, parts_of, save_steps, steps_in
from harness._tests.launched import Run
from harness.checkpoint import pending, points
from harness.checkpoint.format import inspect
from harness.checkpoint.store import CheckpointStore, Loaded, PendingSave, Saved
from harness.errors import LoadRefused, SaveFailed
from harness.wire import Kind


class Gate(Witness):
    """Holds whoever reaches ``failpoint`` there until it is opened; a witness otherwise."""

    def __init__(self, failpoint: str) -> None:
        super().__init__()
        self._failpoint = failpoint
        self._is_open = threading.Event()
        self.is_reached = threading.Event()

    def open(self) -> None:
        self._is_open.set()

    def reach(self, failpoint: str) -> None:
        super().reach(failpoint)
        if failpoint == self._failpoint:
            self.is_reached.set()
            assert self._is_open.wait(DEADLINE_S), f"nobody opened {failpoint}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Gate]:
    def install(failpoint: str) -> Gate:
        made = Gate(failpoint)
        monkeypatch.setattr(points, "listener", made)
        return made

    return install


def load(root: Path) -> Loaded:
    loaded = CheckpointStore(root).load()
    assert loaded is not None
    return loaded


def trained(num_updates: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(num_updates):
        update(model, optimizer)
    return model, optimizer


def update(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()


# What is saved


def test_what_is_saved_is_what_it_was_when_the_save_was_asked_for(root: Path, gate: Callable[[str], Gate]) -> None:
    model, optimizer = trained(2)
    progress = {"history": [1.0, {"best": [0.5]}], "step": 2}
    shared = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "progress": progress}
    own: dict[str, Any] = {"sampler": {"position": [2]}, "noise": torch.zeros(3)}
    shared_then, own_then = copy.deepcopy((shared, own))
    held = gate("ckpt.stage.mkdir:before")
    saving = CheckpointStore(root).async_save(2, shared, own)
    assert held.is_reached.wait(DEADLINE_S)  # nothing is written yet
    update(model, optimizer)
    progress["step"] = 3
    progress["history"][1]["best"].append(0.7)  # type: ignore[index]
    own["sampler"]["position"][0] = 3
    own["noise"] += 1
    del own["noise"], shared["model"]
    held.open()
    assert saving.result().path == root / "step-2"
    loaded = load(root)
    torch.testing.assert_close(loaded.shared["model"], dict(shared_then["model"]), rtol=0, atol=0)
    state, state_then = loaded.shared["optimizer"]["state"], shared_then["optimizer"]["state"]
    torch.testing.assert_close(state, state_then, rtol=0, atol=0)
    assert state[0]["step"].item() == 2
    assert optimizer.state_dict()["state"][0]["step"].item() == 3, "training went on meanwhile"
    assert loaded.shared["progress"] == shared_then["progress"]
    assert str(loaded.own) == str(own_then)


def test_both_ways_to_save_write_the_same_bytes(root: Path) -> None:
    weight = torch.arange(1000.0).reshape(10, 100)
    value = {"tied": [weight, weight, weight[2:4]], "strided": weight.t(), "parameter": torch.nn.Parameter(weight[0])}
    files = []
    for name in ("sync", "async"):
        store = CheckpointStore(root / name)
        if name == "sync":
            store.save(1, {"model": value}, {"a": 1})
        else:
            store.async_save(1, {"model": value}, {"a": 1}).result()
        files.append([(root / name / "step-1" / file).read_bytes() for file in ("model.pt", "rank-0.pt")])
    assert files[0] == files[1]


# When it counts


def test_a_save_counts_when_it_has_ended_and_not_before(root: Path, gate: Callable[[str], Gate]) -> None:
    store = CheckpointStore(root, keep_last=2)
    save_steps(store, 5, 10)
    held = gate("ckpt.publish.rename:before")
    saving = store.async_save(15, parts_of(15), {})
    assert held.is_reached.wait(DEADLINE_S)
    assert not saving.done()
    with pytest.raises(TimeoutError, match="the save of step 15 is still going on after 0 s"):
        saving.result(timeout_s=0)
    assert steps_in(root) == [10, 5]
    assert (root / "latest").readlink() == Path("step-10")
    assert Kind.SAVE_END not in [kind for _, kind, _, _ in held.told]
    held.open()
    saving.result()
    assert saving.done()
    assert steps_in(root) == [15, 10]
    assert (root / "latest").readlink() == Path("step-15")
    assert [kind for _, kind, _, _ in held.told if kind is not Kind.INVENTORY] == [Kind.SAVE_START, Kind.SAVE_END]


@pytest.mark.parametrize("then", ["save", "async_save", "load", "wait"])
def test_whatever_comes_next_waits_for_it(then: str, root: Path, gate: Callable[[str], Gate]) -> None:
    held = gate("ckpt.stage.mkdir:before")
    store = CheckpointStore(root)
    first = store.async_save(5, parts_of(5), {})
    assert held.is_reached.wait(DEADLINE_S)
    threading.Timer(0.05, held.open).start()  # while the next call is waiting
    match then:
        case "save":
            store.save(10, parts_of(10), {})
        case "async_save":
            store.async_save(10, parts_of(10), {}).result()
        case "load":
            loaded = store.load()
            assert loaded is not None
            assert loaded.step == 5
        case _:
            store.wait()
    assert first.done()
    assert steps_in(root) == ([10, 5] if "save" in then else [5])
    started_and_ended = [kind for _, kind, step, _ in held.told if kind in (Kind.SAVE_START, Kind.SAVE_END)]
    assert started_and_ended[:2] == [Kind.SAVE_START, Kind.SAVE_END], "one save at a time"


def test_ranks_save_beside_their_other_votes(root: Path) -> None:
    """The votes of the two threads of a rank never meet, in whatever order they come."""

    def act(store: CheckpointStore, rank: int) -> list[bytes]:
        exchange = store._exchange
        assert exchange is not None
        saving = [store.async_save(5, parts_of(5), {"rank": rank})]
        heard = [b"".join(exchange.gather(f"{rank}:{number} ".encode())) for number in range(200)]
        saving[0].result()
        return heard

    everyones = all_of(in_ranks(3, root, act))
    assert everyones[0] == everyones[1] == everyones[2] == [f"0:{n} 1:{n} 2:{n} ".encode() for n in range(200)]
    loaded = in_ranks(3, root, lambda store, _: store.load())
    assert [result.own for result in loaded] == [{"rank": rank} for rank in range(3)]


# How it fails


FAILPOINTS = [
    f"ckpt.{name}:before" for name in ("stage.mkdir", "shard.write", "manifest.fsync", "publish.rename", "acknowledge")
]


@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_a_failure_is_told_to_all_who_ask_and_harms_nothing(
    failpoint: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness = Witness(lambda rank, reached: (rank, reached) == (0, failpoint))
    witness.is_armed = False
    monkeypatch.setattr(points, "listener", witness)
    barrier = threading.Barrier(2, timeout=DEADLINE_S)

    def act(store: CheckpointStore, rank: int) -> list[str]:
        save_steps(store, 5)
        barrier.wait()
        witness.is_armed = True
        saving = store.async_save(10, parts_of(10), {})
        told = []
        for _ in range(2):  # asking again gives the same answer
            with pytest.raises(SaveFailed, match=r"rank 0: OSError.*No space left on device") as caught:
                saving.result()
            told.append(str(caught.value))
        barrier.wait()
        witness.is_armed = False
        store.wait()  # it was asked for: told once is enough
        store.async_save(10, parts_of(10), {}).result()
        return told

    first, second = all_of(in_ranks(2, root, act))
    assert first == second
    assert steps_in(root) == [10, 5]
    errors = [(rank, step) for rank, kind, step, _ in witness.told if kind is Kind.SAVE_ERROR]
    assert sorted(errors) == [(0, 10), (1, 10)]


@pytest.mark.parametrize("then", ["save", "async_save", "load", "wait"])
def test_a_failure_that_nobody_asked_about_is_raised_by_what_comes_next(
    then: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness = Witness(lambda rank, reached: reached == "ckpt.complete.write:before")
    monkeypatch.setattr(points, "listener", witness)
    store = CheckpointStore(root)
    store.async_save(5, parts_of(5), {})
    following: dict[str, Callable[[], Any]] = {
        "save": lambda: store.save(10, parts_of(10), {}),
        "async_save": lambda: store.async_save(10, parts_of(10), {}),
        "load": store.load,
        "wait": store.wait,
    }
    with pytest.raises(SaveFailed, match="save of step 5: published: rank 0: OSError"):
        following[then]()
    witness.is_armed = False
    store.save(10, parts_of(10), {})  # told once
    assert steps_in(root) == [10]


def test_what_cannot_be_copied_is_refused_at_once_on_all_ranks(root: Path) -> None:
    def act(store: CheckpointStore, rank: int) -> None:
        store.async_save(5, {}, {"bad": print} if rank == 1 else {})

    for result in in_ranks(2, root, act):
        assert isinstance(result, SaveFailed)
        assert r"rank 1: TypeError: rank-1['bad'] is builtins.builtin_function_or_method" in str(result)
    assert inspect(root) == []


def test_ranks_that_save_in_different_ways_are_out_of_step(root: Path) -> None:
    def act(store: CheckpointStore, rank: int) -> Any:
        return store.load() if rank == 2 else (store.save if rank else store.async_save)(5, parts_of(5), {})

    kinds = [type(result) for result in in_ranks(3, root, act)]
    assert kinds == [SaveFailed, SaveFailed, LoadRefused]


def test_a_forked_child_has_no_part_in_it(root: Path, gate: Callable[[str], Gate]) -> None:
    held = gate("ckpt.stage.mkdir:before")
    store = CheckpointStore(root)
    saving = store.async_save(5, parts_of(5), {})
    assert held.is_reached.wait(DEADLINE_S)
    if (child := os.fork()) == 0:
        code = 1
        try:
            store.wait()
            try:
                saving.result()
            except SaveFailed as error:
                code = 0 if "goes on in the process that this one was forked from" in str(error) else 2
        finally:
            os._exit(code)
    held.open()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    saving.result()
    assert steps_in(root) == [5]


def test_it_is_asked_for_once_somebody_has_seen_its_end(root: Path) -> None:
    saving = PendingSave(1, lambda: Saved(step=1, path=root, manifest_sha256=""))
    assert saving in pending._unasked
    assert saving.result(DEADLINE_S).step == 1
    assert saving not in pending._unasked


# Real processes


def test_the_record_of_a_run_holds_its_events_and_not_the_votes_of_its_thread(run: Run, root: Path) -> None:
    """Which step and phase of the training such a vote meets is chance: a fault at the k-th must not depend on it."""
    history = run(f"""
        from harness.checkpoint.store import CheckpointStore
        dist.init_process_group("gloo")
        store = CheckpointStore({str(root)!r})
        store.load()
        store.async_save(5, {{}}, {{}}).result()
        dist.destroy_process_group()
    """)
    assert history.outcome.exit_code == 0
    for rank in (0, 1):
        groups = [e.data["group"] for e in history.of(Kind.GROUP, rank=rank)]
        assert len(groups) == 2, "one for the training, one for the thread"
        calls = history.of(Kind.COLLECTIVE, rank=rank)
        assert {e.data["group"] for e in calls} == {groups[0]}
        assert [e.data["op"] for e in calls] == ["all_gather"] * 2, "load: begin; save: copied"
        (saved,) = history.of(Kind.SAVE_END, rank=rank)
        assert Path(saved.data["path"]).name == "step-5"


JOB = """
import atexit, sys, threading
import torch
import torch.distributed as dist
import torch.distributed.nn  # imported late it would pin the process group, and destroying it would not end its threads
from harness.checkpoint import points
from harness.checkpoint.store import CheckpointStore

place, rank, meeting, how = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)

class Slow:  # until the training has made its last update
    gate = threading.Event()
    def reach(self, failpoint):
        if failpoint == "ckpt.shard.fsync:before":
            self.gate.wait()
            if how == "fails" and rank == 1:
                raise OSError(28, "No space left on device")
    def part(self, name, size_bytes): return None
    def tell(self, *args, **fields): pass

points.listener = Slow()
atexit.register(lambda: dist.is_initialized() and dist.destroy_process_group())  # else gloo may abort at the very end
store = CheckpointStore(place)
store.load()
weight = torch.full((1000,), 1.0)
store.async_save(1, {"model": {"weight": weight}}, {"rank": rank})
for _ in range(300):  # collectives of the training, while the save goes on
    dist.all_reduce(weight, op=dist.ReduceOp.MAX)
    weight += 1
assert weight[0] == 301, weight
if how == "destroys":
    dist.destroy_process_group()
threading.Timer(0.1, Slow.gate.set).start()  # the script is at its end by then
if how == "waits":
    Slow.gate.set()
    store.wait()
    dist.destroy_process_group()
if how == "raises":
    raise RuntimeError("a bug of the training")
"""


def run_job(root: Path, meeting: Path, how: str) -> list[tuple[int, str]]:
    command = [sys.executable, "-c", JOB, str(root)]
    ranks = [
        subprocess.Popen([*command, str(rank), str(meeting), how], stderr=subprocess.PIPE, text=True) for rank in (0, 1)
    ]
    try:
        return [(process.wait(), stderr) for process in ranks for stderr in [process.communicate(timeout=60)[1]]]
    finally:
        for process in ranks:
            process.kill()


@pytest.mark.parametrize(("how", "code"), [("waits", 0), ("ends", 0), ("raises", 1)])
def test_a_process_does_not_end_with_a_save_pending(how: str, code: int, root: Path, tmp_path: Path) -> None:
    ends = run_job(root, tmp_path / "meeting", how)
    assert [status for status, _ in ends] == [code] * 2, ends
    for loaded in all_of(in_ranks(2, root, lambda store, _: store.load())):
        assert loaded.step == 1
        assert loaded.shared["model"]["weight"].tolist() == [1.0] * 1000, "as it was before the training went on"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("fails", "rank 1: OSError: [Errno 28] No space left on device"),
        ("destroys", "call the store's wait() before destroy_process_group()"),
    ],
)
def test_a_process_with_a_failed_save_ends_loudly(how: str, words: str, root: Path, tmp_path: Path) -> None:
    for status, stderr in run_job(root, tmp_path / "meeting", how):
        assert status == 1
        assert "the save of step 1 failed, and nobody asked for its result:" in stderr
        assert words in stderr
    assert steps_in(root) == []
