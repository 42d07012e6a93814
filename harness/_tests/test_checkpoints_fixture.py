"""Every state of checkpoints_fixture, through the judge and through the store, against the expected table."""

from __future__ import annotations

import hashlib
import importlib
import os
import stat
from pathlib import Path

import pytest
import torch

from checkpoints_fixture.__main__ import main
from checkpoints_fixture.expected import Expected, load_expected
from checkpoints_fixture.ranks import ThreadExchange, all_of, run_ranks
from checkpoints_fixture.sound import CONFIG, STEPS, WORLD_SIZE, make_sound, own_parts, shared_parts
from checkpoints_fixture.states import CODES, STATES, make_state
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


def contents_beside(root: Path) -> dict[str, dict[str, str]]:
    """What a state has put outside the directory."""
    return {path.name: contents(path) for path in root.parent.iterdir() if path != root} | {
        path.name: {"": path.read_text(errors="replace")} for path in root.parent.iterdir() if path.is_file()
    }


def load(root: Path) -> list[Loaded | Exception | None]:
    return run_ranks(WORLD_SIZE, lambda exchange: CheckpointStore(root, config=CONFIG, exchange=exchange).load())


def test_each_state_has_its_row_and_each_row_its_state() -> None:
    assert sorted(EXPECTED) == sorted(STATES)


# Crash states that are no state of a directory but an event, or that more than one state shows: where they are tested.
EVENTS = {
    "C20": "test_checkpoint_crash.test_a_job_killed_at",
    "C22": "test_checkpoint_trouble.test_what_has_appeared_under_the_name_of_a_save_is_not_overwritten",
    "C30": "test_checkpoint_store.test_another_number_of_ranks_is_refused",
    "C32": "test_checkpoint_async.test_what_is_saved_is_what_it_was_when_the_save_was_asked_for",
    "C33": "test_checkpoint_trouble.test_a_disk_that_is_full_at_any_file_fails_the_save_on_all_ranks",
    "C33 at fsync and close": "test_checkpoint_trouble.test_an_error_at_any",
    "C34": "test_checkpoint_trouble.test_after_an_fsync_that_lied_a_power_cut_takes_from_a_file",
    "C35": "test_checkpoint_trouble.test_a_directory_that_became_read_only_fails_the_save_and_never_silently",
    "C36": "test_checkpoint_trouble.test_a_rank_that_dies",
    "C37": "test_checkpoint_trouble.test_a_directory_that_another_host_sees_late_is_waited_for",
    "C38": "test_checkpoint_trouble.test_a_zombie_whose_directory_was_taken_over_while_it_wrote_publishes_nothing",
    "C39": "test_checkpoint_retention.test_the_last_ones_by_number_stay_whatever_their_times",
}


def test_every_crash_state_of_the_plan_has_a_state_or_a_test() -> None:
    planned = {f"C{number:02}" for number in range(1, 41)}
    assert planned == {*CODES, *(words.split()[0] for words in EVENTS)}
    for place in EVENTS.values():
        module, _, test = place.partition(".")
        assert callable(getattr(importlib.import_module(f"harness._tests.{module}"), test))


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
    complete = [layout.step_of(name) or 0 for name, verdict in wanted.items() if verdict == "complete"]
    newest = checkpoint_format.newest_valid(root)
    assert (newest.step if newest else None) == max(complete, default=None)
    if isinstance(expected.load, int) and not expected.unread:
        assert newest is not None
        assert newest.step == expected.load


@every_state
def test_a_load_does_what_the_table_says_and_loses_nothing(name: str, expected: Expected, root: Path) -> None:
    before, outside = contents(root), contents_beside(root)
    results = load(root)
    after = contents(root)
    assert contents_beside(root) == outside, "nothing is written outside"
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

    outside = contents_beside(root)
    results = run_ranks(WORLD_SIZE, go_on)
    assert contents_beside(root) == outside, "nothing is written or deleted outside"
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
