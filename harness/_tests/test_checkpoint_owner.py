"""One live writer a directory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness._tests.checkpoint_ranks import save_steps
from harness.checkpoint.format import inspect
from harness.checkpoint.store import CheckpointStore
from harness.errors import LoadRefused, SaveFailed


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


HOLDER = """
import os, sys, time
from harness.checkpoint import owner
from pathlib import Path
owner.claim(Path(sys.argv[1]))
is_child = "fork" in sys.argv and os.fork() == 0
if is_child or "fork" not in sys.argv:
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
