"""Shared memory that stays behind is laid at the door of the run that made it, and of no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness._tests.launched import Run
from harness.rank.shared_memory import SHM, left_behind, names


@pytest.fixture(autouse=True)
def tidy() -> Iterator[None]:
    before = names()
    yield
    for name in names() - before:
        if name.startswith(("left-", "foreign-")):
            (SHM / name).unlink(missing_ok=True)


MADE_BY = {
    "multiprocessing": """
from multiprocessing import resource_tracker, shared_memory
block = shared_memory.SharedMemory(create=True, size=64, name=f"left-{name}")
resource_tracker.unregister(block._name, "shared_memory")
""",
    "a plain file": 'open(f"/dev/shm/left-{name}", "wb").write(bytes(64))\n',
    "pathlib": 'import pathlib\npathlib.Path(f"/dev/shm/left-{name}").write_bytes(bytes(64))\n',
    "something that only puts its pid into the name": """
import subprocess
subprocess.run(["cp", "/dev/null", f"/dev/shm/left-{os.getpid()}-block"], check=True)
""",
}


@pytest.mark.parametrize("how", MADE_BY)
def test_a_file_that_a_rank_made_is_named(run: Run, how: str, tmp_path: Path) -> None:
    text = f"if rank == 1:\n    name = {tmp_path.name!r}\n" + "".join(
        f"    {line}\n" for line in MADE_BY[how].split("\n")
    )
    (line,) = run(text).outcome.leftovers
    assert "/dev/shm/left-" in line


def test_a_file_that_is_removed_again_is_not(run: Run) -> None:
    history = run('path = f"/dev/shm/left-{os.getpid()}"\nopen(path, "w").close()\nos.unlink(path)\n')
    assert history.outcome.leftovers == ()


def test_a_file_that_somebody_else_made_meanwhile_is_not(run: Run) -> None:
    # A process that is no child of the run's, by way of a path that no rank knows.
    history = run("import subprocess\nsubprocess.run(['sh', '-c', 'cp /dev/null /dev/shm/foreign-block'])\n")
    assert (SHM / "foreign-block").exists()
    assert history.outcome.leftovers == ()


def test_what_was_there_before_is_not(tmp_path: Path) -> None:
    (SHM / "left-12345").write_bytes(b"")
    assert list(left_behind(tmp_path, names(), [12345])) == []
    assert list(left_behind(tmp_path, names() - {"left-12345"}, [12345])) == ["left-12345"]
    assert list(left_behind(tmp_path, names() - {"left-12345"}, [1234])) == []
