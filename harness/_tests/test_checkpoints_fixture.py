"""Every state of checkpoints_fixture, through the judge and through the store, against the expected table."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest
import torch

from checkpoints_fixture.__main__ import main
from checkpoints_fixture.expected import Expected, load_expected
from checkpoints_fixture.ranks import ThreadExchange, all_of, run_ranks
from checkpoints_fixture.sound import CONFIG, STEPS, WORLD_SIZE, make_sound, own_parts, shared_parts
from checkpoints_fixture.states import STATES, make_state
from harness.checkpoint import format as checkpoint_format
from harness.checkpoint import layout
from harness.checkpoint.store import CheckpointStore, Loaded
from harness.errors import LoadRefused

EXPECTED = load_expected()
every_state = pytest.mark.parametrize(("name", "expected"), EXPECTED.items(), ids=EXPECTED)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fixture") / "sound"
    make_sound(root)
    return root


@pytest.fixture
def root(name: str, sound: Path, tmp_path: Path) -> Path:
    make_state(name, sound, tmp_path / "checkpoints")
    return tmp_path / "checkpoints"


def contents(root: Path) -> dict[str, str]:
    """Path below ``root`` -> digest, link target or kind of everything but the bookkeeping."""
    found = {}
    for path in root.rglob("*"):
        if path.parent == root and path.name in layout.BOOKKEEPING:
            continue
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode):
            found[str(path.relative_to(root))] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif not stat.S_ISDIR(mode):
            found[str(path.relative_to(root))] = f"{stat.S_IFMT(mode)} {path.readlink() if path.is_symlink() else ''}"
    return found


def load(root: Path) -> list[Loaded | Exception | None]:
    return run_ranks(WORLD_SIZE, lambda exchange: CheckpointStore(root, config=CONFIG, exchange=exchange).load())


def test_each_state_has_its_row_and_each_row_its_state() -> None:
    assert sorted(EXPECTED) == sorted(STATES)


@every_state
def test_the_judge_gives_each_entry_its_verdict(name: str, expected: Expected, root: Path) -> None:
    wanted = {f"step-{step}": "complete" for step in STEPS} | dict(expected.entries)
    wanted |= dict.fromkeys(expected.unread, "complete")
    for gone in expected.gone:
        wanted.pop(gone)
    entries = checkpoint_format.inspect(root)
    assert {entry.name: entry.verdict for entry in entries} == wanted
    broken = [e for e in entries if e.step is not None and e.verdict in ("incomplete", "corrupt")]
    if expected.reason and not expected.unread:
        assert expected.reason in broken[0].reason
    newest = checkpoint_format.newest_valid(root)
    if not expected.unread:
        assert (newest.step if newest else None) == (expected.load if isinstance(expected.load, int) else None)


@every_state
def test_a_load_does_what_the_table_says_and_loses_nothing(name: str, expected: Expected, root: Path) -> None:
    before = contents(root)
    results = load(root)
    after = contents(root)
    assert sorted(before.values()) == sorted(after.values()), "a load renames at most; it deletes and changes nothing"
    assert not (root.parent / "payload-ran").exists()
    match expected.load:
        case "refused":
            assert [type(result) for result in results] == [LoadRefused] * WORLD_SIZE
            assert expected.message in str(results[0])
            assert str(root) in str(results[0])
            assert after == before
        case "nothing":
            assert results == [None] * WORLD_SIZE
            assert after == before
        case int(step):
            for rank, loaded in enumerate(results):
                assert isinstance(loaded, Loaded), loaded
                assert loaded.step == step
                assert loaded.shared["progress"] == shared_parts(step)["progress"]
                assert torch.equal(loaded.shared["model"]["weight"], shared_parts(step)["model"]["weight"])
                assert loaded.own == own_parts(step, rank)
                assert [c.verdict for c in loaded.candidates][-1] == "complete"
                if expected.reason:
                    assert expected.reason in loaded.candidates[0].reason
            passed_over = [entry for entry in expected.entries if (layout.step_of(entry) or 0) > step]
            for entry in passed_over:
                assert not os.path.lexists(root / entry)
                assert len(list(root.glob(f".corrupt-*-{entry}"))) == 1


@every_state
def test_a_job_goes_on_saving_after_each_state_that_lets_it_load(name: str, expected: Expected, root: Path) -> None:
    def go_on(exchange: ThreadExchange) -> list[int]:
        store = CheckpointStore(root, config=CONFIG, exchange=exchange)
        loaded = store.load()
        first = loaded.step if loaded else 0
        steps = [first + 5, first + 10]
        for step in steps:
            store.save(step, shared_parts(step), own_parts(step, exchange.rank))
        return steps

    results = run_ranks(WORLD_SIZE, go_on)
    if expected.load == "refused":
        assert all(isinstance(result, LoadRefused) for result in results)
        return
    steps = all_of(results)[0]
    newest = checkpoint_format.newest_valid(root)
    assert newest is not None
    assert newest.step == steps[-1]
    assert (root / "latest").readlink() == Path(newest.name)
    untouched = [
        entry for entry, verdict in expected.entries.items() if verdict in ("foreign", "quarantined", "abandoned")
    ]
    assert all((root / entry).is_dir() for entry in untouched)


def test_the_command_builds_every_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "states")]) == 0
    assert f"{len(STATES)} states" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "states").iterdir()} == {*STATES, "made"}
    assert main([]) == 2
