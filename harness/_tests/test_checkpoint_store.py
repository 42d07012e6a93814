"""Save and load of several ranks: votes, failures and refusals."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from checkpoints_fixture.ranks import ThreadExchange, all_of, run_ranks
from harness._tests.checkpoint_ranks import Witness, in_ranks, parts_of, save_steps, steps_in
from harness.checkpoint import points
from harness.checkpoint.format import FAILPOINTS, inspect
from harness.checkpoint.store import CheckpointStore, Loaded, Saved
from harness.errors import LoadRefused, SaveFailed
from harness.wire import Kind


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture
def listen(monkeypatch: pytest.MonkeyPatch) -> Callable[[Witness], Witness]:
    def install(witness: Witness) -> Witness:
        monkeypatch.setattr(points, "listener", witness)
        return witness

    return install


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
    assert {entry.verdict for entry in inspect(root)} == {"complete"}
    errors = [(rank, step) for rank, kind, step, _ in witness.told if kind is Kind.SAVE_ERROR]
    assert sorted(errors) == [(0, 10), (1, 10)]


@pytest.mark.parametrize(("failing", "failpoint"), FAILURES)
def test_after_a_first_save_that_failed_the_next_job_starts_from_zero(
    failing: int, failpoint: str, root: Path, listen: Callable[[Witness], Witness]
) -> None:
    witness = listen(Witness(lambda rank, reached: (rank, reached) == (failing, failpoint)))

    def fail(store: CheckpointStore, rank: int) -> None:
        with pytest.raises(SaveFailed):
            save_steps(store, 5)

    def begin(store: CheckpointStore, rank: int) -> None:
        assert store.load() is None
        save_steps(store, 5)

    all_of(in_ranks(2, root, fail))
    witness.is_armed = False
    all_of(in_ranks(2, root, begin))
    assert [(entry.step, entry.verdict) for entry in inspect(root)] == [(5, "complete")]


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
