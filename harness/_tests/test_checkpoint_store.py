"""Save and load of several ranks: votes, refusals, retention, roll back, what the harness is told."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from checkpoints_fixture.ranks import ThreadExchange, all_of, run_ranks
from harness.checkpoint import points
from harness.checkpoint.format import FAILPOINTS, inspect, newest_valid
from harness.checkpoint.store import CheckpointStore, Loaded, Saved
from harness.errors import LoadRefused, SaveFailed
from harness.wire import Kind


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


class Witness:
    """A listener that keeps what it is told, by rank, and raises ``error`` where ``fails`` says so."""

    def __init__(self, fails: Callable[[int, str], bool] = lambda rank, failpoint: False) -> None:
        self._fails = fails
        self.is_armed = True
        self.local = threading.local()
        self.reached: list[tuple[int, str]] = []
        self.told: list[tuple[int, Kind, int, dict[str, Any]]] = []

    @property
    def rank(self) -> int:
        return getattr(self.local, "rank", 0)

    def reach(self, failpoint: str) -> None:
        self.reached.append((self.rank, failpoint))
        if self.is_armed and self._fails(self.rank, failpoint):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def part(self, name: str, size_bytes: int) -> int | None:
        return None

    def tell(self, kind: Kind, step: int, **fields: Any) -> None:
        self.told.append((self.rank, kind, step, fields))


@pytest.fixture
def listen(monkeypatch: pytest.MonkeyPatch) -> Callable[[Witness], Witness]:
    def install(witness: Witness) -> Witness:
        monkeypatch.setattr(points, "listener", witness)
        return witness

    return install


def parts_of(step: int) -> dict[str, Any]:
    return {"model": {"weight": torch.full((10,), float(step))}}


def save_steps(store: CheckpointStore, *steps: int) -> list[Saved]:
    return [store.save(step, parts_of(step), {"position": step}) for step in steps]


def in_ranks(world_size: int, root: Path, act: Callable[[CheckpointStore, int], Any], **settings: Any) -> list[Any]:
    def one(exchange: ThreadExchange) -> Any:
        if isinstance(points.listener, Witness):
            points.listener.local.rank = exchange.rank
        return act(CheckpointStore(root, exchange=exchange, **settings), exchange.rank)

    return run_ranks(world_size, one)


def steps_in(root: Path) -> list[int | None]:
    return [entry.step for entry in inspect(root) if entry.verdict == "complete"]


# One process, no process group


def test_what_is_saved_is_loaded_in_a_world_of_one(root: Path) -> None:
    store = CheckpointStore(root)
    assert store.load() is None
    saved = save_steps(store, 5, 10)[-1]
    loaded = CheckpointStore(root).load()
    assert isinstance(loaded, Loaded)
    assert (loaded.step, loaded.path, loaded.manifest_sha256) == (10, saved.path, saved.manifest_sha256)
    assert torch.equal(loaded.shared["model"]["weight"], parts_of(10)["model"]["weight"])
    assert loaded.own == {"position": 10}


def test_any_tool_can_check_a_checkpoint_by_hand(root: Path) -> None:
    save_steps(CheckpointStore(root), 5)
    done = subprocess.run(["sha256sum", "-c", "COMPLETE"], cwd=root / "step-5", capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.splitlines() == ["MANIFEST.json: OK", "model.pt: OK", "rank-0.pt: OK"]


def test_files_are_private_to_the_user(root: Path) -> None:
    before = os.umask(0)
    try:
        save_steps(CheckpointStore(root), 5)
    finally:
        os.umask(before)
    for path in [root, *root.rglob("*")]:
        if not path.is_symlink():
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode == (0o700 if path.is_dir() else 0o600), f"{path} has {mode:o}"


LOADABLE = {
    "tensors of each kind": {"a": torch.zeros(2, dtype=torch.bfloat16), "b": torch.nn.Parameter(torch.ones(1))},
    "numbers and text": [1, 2.5, True, None, "x", b"y", float("inf"), 2**80, 1 + 2j],
    "containers": ({1: 2}, OrderedDict(a=1), [()], {3}, (1, (2,))),
    "torch's own": [torch.Size([1, 2]), torch.float16],
}


@pytest.mark.parametrize("value", LOADABLE.values(), ids=LOADABLE)
def test_plain_data_comes_back(value: Any, root: Path) -> None:
    CheckpointStore(root).save(1, {"value": value}, {})
    loaded = CheckpointStore(root).load()
    assert loaded is not None
    assert str(loaded.shared["value"]) == str(value)


UNLOADABLE = {
    "own['sampler']['position'] is numpy.int64": {"sampler": {"position": np.int64(3)}},
    "own['path'] is pathlib": {"path": Path("x")},
    "own['seen'] is collections.defaultdict": {"seen": defaultdict(int)},
    "own['a'][1][0] is numpy.ndarray": {"a": [1, (np.zeros(2),)]},
    "own['f'] is builtins.function": {"f": lambda: None},
}


@pytest.mark.parametrize(("words", "own"), UNLOADABLE.items(), ids=UNLOADABLE)
def test_what_could_not_be_loaded_is_not_saved(words: str, own: dict[str, Any], root: Path) -> None:
    with pytest.raises(SaveFailed, match="without running code") as caught:
        CheckpointStore(root).save(1, {}, own)
    assert words.replace("own[", "rank-0[") in str(caught.value)
    assert inspect(root) == []


@pytest.mark.parametrize(
    ("keep_last", "config", "error", "words"),
    [(1, None, ValueError, "keep_last is 1; it must be at least 2"), (3, {"a": {1}}, TypeError, "not JSON")],
)
def test_bad_settings_are_refused(keep_last: int, config: Any, error: type[Exception], words: str, root: Path) -> None:
    with pytest.raises(error, match=words):
        CheckpointStore(root, keep_last=keep_last, config=config)


@pytest.mark.parametrize("step", [-1, 10**18, "5", 5.0, True], ids=repr)
def test_a_step_is_a_whole_number(step: Any, root: Path) -> None:
    with pytest.raises(SaveFailed, match="it must be a whole number from 0"):
        CheckpointStore(root).save(step, {}, {})


@pytest.mark.parametrize("part", ["rank-0", "../x", "", "Model", "a.b", "COMPLETE", "x" * 64])
def test_a_part_has_a_plain_name(part: str, root: Path) -> None:
    with pytest.raises(SaveFailed, match="must be named by a-z"):
        CheckpointStore(root).save(1, {part: 1}, {})
    assert inspect(root) == []


def test_steps_only_grow(root: Path) -> None:
    store = CheckpointStore(root)
    save_steps(store, 10)
    with pytest.raises(SaveFailed, match="step 5 comes after step 10"):
        save_steps(store, 5)
    assert steps_in(root) == [10]


def test_the_same_save_twice_is_one(root: Path) -> None:
    store = CheckpointStore(root)
    first, second = save_steps(store, 10, 10)
    assert first == second
    assert [entry.name for entry in inspect(root)] == ["step-10"]
    with pytest.raises(SaveFailed, match="step 10 is saved already, with other content"):
        store.save(10, parts_of(11), {"position": 10})
    assert [(entry.name, entry.manifest) for entry in inspect(root)] == [("step-10", first.manifest_sha256)]


def test_a_job_that_did_not_load_does_not_write_beside_what_is_there(root: Path) -> None:
    save_steps(CheckpointStore(root), 5)
    with pytest.raises(SaveFailed, match=r"step-5, which this job did not load: call load\(\) first"):
        save_steps(CheckpointStore(root), 10)


# Several ranks


def test_each_rank_gets_its_own_part_and_the_shared_ones(root: Path) -> None:
    def train(store: CheckpointStore, rank: int) -> None:
        store.save(5, parts_of(5) if rank == 0 else {}, {"rank": rank})

    def resume(store: CheckpointStore, rank: int) -> tuple[float, dict[str, Any]]:
        loaded = store.load()
        assert loaded is not None
        return loaded.shared["model"]["weight"][0].item(), loaded.own

    all_of(in_ranks(3, root, train))
    assert in_ranks(3, root, resume) == [(5.0, {"rank": rank}) for rank in range(3)]


def test_another_number_of_ranks_is_refused(root: Path) -> None:
    all_of(in_ranks(2, root, lambda store, _: save_steps(store, 5, 10)))
    for result in in_ranks(3, root, lambda store, _: store.load()):
        assert isinstance(result, LoadRefused)
        assert "step-10 must not be loaded: it was saved by 2 ranks and this job has 3" in str(result)
    assert steps_in(root) == [10, 5]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"lr": 0.2, "batch": 8}, "its config has lr = 0.1 and this job has 0.2"),
        ({"lr": 0.1}, "its config has batch = 8 and this job has 'absent'"),
        ({"lr": 0.1, "batch": 8, "seed": 1}, "its config has seed = 'absent' and this job has 1"),
    ],
)
def test_another_config_is_refused_by_the_name_of_its_field(config: dict[str, Any], words: str, root: Path) -> None:
    save_steps(CheckpointStore(root, config={"lr": 0.1, "batch": 8}), 5)
    with pytest.raises(LoadRefused) as caught:
        CheckpointStore(root, config=config).load()
    assert words in str(caught.value)
    assert CheckpointStore(root, config={"batch": 8, "lr": 0.1}).load() is not None


def test_ranks_at_different_steps_are_out_of_step_on_all(root: Path) -> None:
    for result in in_ranks(2, root, lambda store, rank: save_steps(store, 5 + rank)):
        assert isinstance(result, SaveFailed)
        assert "rank 0 at 'save of step 5: begin', rank 1 at 'save of step 6: begin'" in str(result)
    assert inspect(root) == []


def test_a_rank_that_loads_while_another_saves_is_out_of_step(root: Path) -> None:
    first, second = in_ranks(2, root, lambda store, rank: store.load() if rank else save_steps(store, 5))
    assert isinstance(first, SaveFailed)
    assert isinstance(second, LoadRefused)


def test_ranks_with_different_configs_do_not_save(root: Path) -> None:
    def act(exchange: ThreadExchange) -> list[Saved]:
        return save_steps(CheckpointStore(root, config={"rank": exchange.rank}, exchange=exchange), 5)

    assert [type(result) for result in run_ranks(2, act)] == [SaveFailed] * 2
    assert inspect(root) == []


SAVE_FAILPOINTS = [n for n, f in FAILPOINTS.items() if f.during == "save"]
HARMLESS = [n for n in SAVE_FAILPOINTS if n.startswith(("ckpt.latest.", "ckpt.retention."))]
FAILURES = [
    (rank, f"{name}:{moment}")
    for name in SAVE_FAILPOINTS
    if name not in HARMLESS
    for moment in ("before", "after")
    for rank in ((0, 1) if FAILPOINTS[name].writer == "every" else (0,))
    if f"{name}:{moment}" != "ckpt.acknowledge:after"
]


@pytest.mark.parametrize(("failing", "failpoint"), FAILURES)
def test_a_full_disk_on_one_rank_fails_all_and_harms_nothing(
    failing: int, failpoint: str, root: Path, listen: Callable[[Witness], Witness]
) -> None:
    witness = listen(Witness(lambda rank, reached: (rank, reached) == (failing, failpoint)))
    witness.is_armed = False

    def act(store: CheckpointStore, rank: int) -> list[str]:
        save_steps(store, 5)
        barrier.wait()
        witness.is_armed = True
        with pytest.raises(SaveFailed, match=f"rank {failing}: OSError.*No space left on device") as caught:
            save_steps(store, 10)
        barrier.wait()
        witness.is_armed = False
        save_steps(store, 10, 15)
        return [str(caught.value)]

    barrier = threading.Barrier(2, timeout=20)
    first, second = all_of(in_ranks(2, root, act))
    assert first == second
    assert steps_in(root) == [15, 10, 5]
    assert {entry.verdict for entry in inspect(root)} <= {"complete", "abandoned"}
    errors = [(rank, step) for rank, kind, step, _ in witness.told if kind is Kind.SAVE_ERROR]
    assert sorted(errors) == [(0, 10), (1, 10)]


@pytest.mark.parametrize("failpoint", [f"{name}:before" for name in HARMLESS])
def test_what_fails_after_the_acknowledgement_is_only_logged(
    failpoint: str, root: Path, listen: Callable[[Witness], Witness], caplog: pytest.LogCaptureFixture
) -> None:
    listen(Witness(lambda rank, reached: reached == failpoint))
    save_steps(CheckpointStore(root, keep_last=2), 5, 10, 15)
    assert steps_in(root)[:2] == [15, 10]
    assert "tidying up failed" in caplog.text


def test_damage_that_one_rank_sees_is_damage_for_all(root: Path) -> None:
    all_of(in_ranks(2, root, lambda store, _: save_steps(store, 5, 10)))
    path = root / "step-10" / "rank-1.pt"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    first, second = in_ranks(2, root, lambda store, _: store.load())
    assert (first.step, second.step) == (5, 5)
    assert first.candidates == second.candidates
    assert first.candidates[0].reason == "on rank 1: rank-1.pt has not the bytes that were saved (sha256 differs)"


def test_a_repeated_save_that_fails_leaves_the_first_in_place(root: Path, listen: Callable[[Witness], Witness]) -> None:
    witness = listen(Witness(lambda rank, reached: (rank, reached) == (1, "ckpt.acknowledge:before")))
    witness.is_armed = False
    barrier = threading.Barrier(2, timeout=20)

    def act(store: CheckpointStore, rank: int) -> None:
        save_steps(store, 5)
        barrier.wait()
        witness.is_armed = True
        with pytest.raises(SaveFailed):
            save_steps(store, 5)

    all_of(in_ranks(2, root, act))
    assert [(entry.name, entry.verdict) for entry in inspect(root)] == [("step-5", "complete")]


# Retention


@pytest.mark.parametrize(
    ("keep_last", "steps", "left"),
    [
        (2, [5, 10, 15], [15, 10]),
        (3, [1, 2, 3, 4, 5], [5, 4, 3]),
        (2, [9900, 10000], [10000, 9900]),
        (4, [1, 2], [2, 1]),
    ],
)
def test_the_last_ones_by_number_stay(keep_last: int, steps: list[int], left: list[int], root: Path) -> None:
    save_steps(CheckpointStore(root, keep_last=keep_last), *steps)
    assert [entry.name for entry in inspect(root)] == [f"step-{step}" for step in left]


def test_only_verified_ones_count_as_kept(root: Path) -> None:
    save_steps(CheckpointStore(root), 5, 10, 15)
    store = CheckpointStore(root, keep_last=3)
    store.load()
    save_steps(store, 20)
    assert steps_in(root) == [20, 15, 10, 5], (
        "nothing is known of 10 and 5 in this process, so 15 and 20 are all it has"
    )
    save_steps(store, 25)
    assert steps_in(root) == [25, 20, 15]


def test_what_this_store_did_not_make_is_never_deleted(root: Path) -> None:
    store = CheckpointStore(root, keep_last=2)
    save_steps(store, 10)
    foreign = [
        "step-1.backup",
        ".step-7.tmp-0-00000000000000aa",
        ".trash-0-00000000000000aa-step-3",
        ".corrupt-x",
        "notes",
    ]
    for name in foreign:
        (root / name).mkdir()
        (root / name / "model.pt").write_bytes(b"precious")
    other = root.parent / "other"
    save_steps(CheckpointStore(other), 5)
    shutil.copytree(other / "step-5", root / "step-5")  # sound, but of another job
    save_steps(store, 20, 30, 40)
    assert steps_in(root) == [40, 30, 5]
    assert all((root / name / "model.pt").read_bytes() == b"precious" for name in foreign)


def test_a_foreign_file_in_an_old_checkpoint_outlives_it(root: Path) -> None:
    store = CheckpointStore(root, keep_last=2)
    save_steps(store, 5)
    (root / ".trash").mkdir()
    save_steps(store, 10)
    (root / "step-5" / "notes.txt").write_text("precious")
    save_steps(store, 15)
    assert (root / "step-5" / "notes.txt").read_text() == "precious"


@pytest.mark.parametrize("harm", ["the marker is gone", "all of it is gone"])
def test_nothing_is_deleted_while_one_that_should_stay_is_damaged(harm: str, root: Path) -> None:
    store = CheckpointStore(root, keep_last=2)
    save_steps(store, 5, 10)
    if harm == "the marker is gone":
        (root / "step-10" / "COMPLETE").unlink()
    else:
        shutil.rmtree(root / "step-10")
    save_steps(store, 15)
    assert steps_in(root) == [15, 5]
    save_steps(store, 20)
    assert steps_in(root)[:2] == [20, 15]


# Rolling back


def test_newer_checkpoints_are_set_aside_by_a_roll_back(root: Path) -> None:
    save_steps(CheckpointStore(root), 5, 10, 15)
    store = CheckpointStore(root)
    loaded = store.load(at_most=12)
    assert loaded is not None
    assert loaded.step == 10
    assert steps_in(root) == [10, 5]
    assert [e.name.rpartition("-step-")[2] for e in inspect(root) if e.verdict == "abandoned"] == ["15"]
    save_steps(store, 15)
    assert steps_in(root) == [15, 10, 5]


def test_a_roll_back_to_before_everything_is_refused(root: Path) -> None:
    save_steps(CheckpointStore(root), 5)
    with pytest.raises(LoadRefused, match="step-5 is newer than asked for"):
        CheckpointStore(root).load(at_most=3)
    assert steps_in(root) == [5]


# One live writer

HOLDER = """
import os, sys, time
from harness.checkpoint import owner
from pathlib import Path
owner.claim(Path(sys.argv[1]))
if "fork" in sys.argv and os.fork() == 0:
    os.close(1)
    sys.stdin.read()
    os._exit(0)
print("holds", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def hold(root: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLDER, str(root), *arguments]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "holds\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_second_live_writer_is_refused_by_the_pid_of_the_first(
    root: Path, hold: Callable[..., subprocess.Popen[str]]
) -> None:
    process = hold()
    with pytest.raises(LoadRefused, match=f"is in use by pid {process.pid} on"):
        CheckpointStore(root).load()
    with pytest.raises(SaveFailed, match=f"is in use by pid {process.pid} on"):
        save_steps(CheckpointStore(root), 5)
    process.kill()
    process.wait()
    assert CheckpointStore(root).load() is None


def test_the_lock_dies_with_its_process_although_a_child_of_it_lives(
    root: Path, hold: Callable[..., subprocess.Popen[str]]
) -> None:
    process = hold("fork")
    process.kill()
    process.wait()
    assert CheckpointStore(root).load() is None


def test_a_writer_that_was_overtaken_does_not_publish(root: Path) -> None:
    store = CheckpointStore(root)
    save_steps(store, 5)
    (root / "ATTEMPT").write_text('{"attempt": "1-00000000000000bb"}')
    with pytest.raises(SaveFailed, match="1-00000000000000bb has taken this directory over"):
        save_steps(store, 10)
    assert [entry.name for entry in inspect(root)] == ["step-5"]


def test_a_root_that_cannot_be_made_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LoadRefused, match="file"):
        CheckpointStore(tmp_path / "file").load()
    with pytest.raises(SaveFailed, match="file"):
        save_steps(CheckpointStore(tmp_path / "file" / "below"), 5)


# What is read and what is told


def test_choosing_among_100_checkpoints_reads_the_data_of_one(root: Path) -> None:
    big = {"model": torch.zeros(250_000)}  # 1 MB
    store = CheckpointStore(root, keep_last=100)
    for step in range(1, 101):
        store.save(step, big, {})
    size_bytes = (root / "step-100" / "model.pt").stat().st_size

    def read_bytes() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])  # rchar

    for choose, times in ((lambda: newest_valid(root), 1), (lambda: CheckpointStore(root).load(), 2)):
        before = read_bytes()
        chosen = choose()
        assert chosen is not None
        assert chosen.step == 100
        assert read_bytes() - before < times * size_bytes + 100_000


def test_the_harness_is_told_all(root: Path, listen: Callable[[Witness], Witness]) -> None:
    witness = listen(Witness())

    def act(store: CheckpointStore, rank: int) -> None:
        assert store.load() is None
        save_steps(store, 5, 10, 15)
        store.load()

    all_of(in_ranks(2, root, act, keep_last=2))
    for rank in (0, 1):
        told = [(kind, step) for r, kind, step, _ in witness.told if r == rank and kind is not Kind.INVENTORY]
        saves = [(kind, step) for step in (5, 10, 15) for kind in (Kind.SAVE_START, Kind.SAVE_END)]
        assert told == [(Kind.LOAD, 0), *saves, (Kind.LOAD, 15)]
    whys = [fields["why"] for rank, kind, _, fields in witness.told if kind is Kind.INVENTORY and rank == 0]
    assert whys == ["load", "saved", "saved", "saved", "retention", "retention", "load"]
    assert not any(kind is Kind.INVENTORY for rank, kind, _, _ in witness.told if rank == 1)
    ends = [
        (fields["path"], fields["manifest"])
        for _, kind, step, fields in witness.told
        if kind is Kind.SAVE_END and step == 15
    ]
    (loads,) = {
        (fields["path"], fields["manifest"])
        for _, kind, step, fields in witness.told
        if kind is Kind.LOAD and step == 15
    }
    assert ends == [loads, loads]


def test_every_failpoint_is_passed_by_its_writers_and_no_other_is(
    root: Path, listen: Callable[[Witness], Witness]
) -> None:
    witness = listen(Witness())

    def act(store: CheckpointStore, rank: int) -> None:
        save_steps(store, 5, 10, 15)
        store.load()

    all_of(in_ranks(2, root, act, keep_last=2))
    for name, failpoint in FAILPOINTS.items():
        for moment in ("before", "after"):
            ranks = {rank for rank, reached in witness.reached if reached == f"{name}:{moment}"}
            assert ranks == ({0, 1} if failpoint.writer == "every" else {0}), f"{name}:{moment}"
    around_all = {f"ckpt.{during}:{moment}" for during in ("save", "load") for moment in ("before", "after")}
    named = {f"{name}:{moment}" for name in FAILPOINTS for moment in ("before", "after")}
    assert {reached for _, reached in witness.reached} == named | around_all
