"""A state as real files: whatever was there before, the directory is equal to it; what is alike is left alone."""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from harness._tests.random_trees import random_visible
from harness.crashstates.read.disk import Disk, look, modified_s
from harness.crashstates.tree import Directory, File, Link, Visible
from harness.errors import RecordError

T = 1_700_000_000.0
STATE: Visible = {
    "empty": Directory(),
    "latest": Link("step-2"),
    "step-1": Directory(),
    "step-1/model": File(b"one", T + 1.5),
    "step-2": Directory(),
    "step-2/deep": Directory(),
    "step-2/deep/model": File(b"two" * 1000, T + 3),
    "step-2/meta": File(b"", T + 2),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def inodes(root: Path) -> dict[str, int]:
    return {str(path.relative_to(root)): path.lstat().st_ino for path in root.rglob("*")}


def test_what_was_put_is_there(root: Path) -> None:
    Disk(root).put(STATE)
    assert look(root) == STATE
    assert list(look(root)) == list(STATE)


def test_any_state_follows_any_other(root: Path) -> None:
    rng = random.Random(7)
    disk = Disk(root)
    for _ in range(200):
        visible = random_visible(rng)
        disk.put(visible)
        assert look(root) == visible


def test_times_are_those_of_the_files(root: Path) -> None:
    Disk(root).put(STATE)
    for path, time_s in modified_s(STATE).items():
        if not isinstance(STATE.get(path), Link):
            assert (root / path).lstat().st_mtime == pytest.approx(time_s)


def test_a_directory_is_as_new_as_the_newest_file_below_it_and_an_empty_one_as_anything() -> None:
    times = modified_s(STATE)
    assert [times[path] for path in ("", "empty", "step-1", "step-2", "step-2/deep")] == [
        T + t for t in (3, 3, 1.5, 3, 3)
    ]


def test_modes_are_for_the_owner_alone(root: Path) -> None:
    Disk(root).put(STATE)
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def test_what_is_alike_is_left_as_it_is(root: Path) -> None:
    disk = Disk(root)
    disk.put(STATE)
    before = inodes(root)
    disk.put(STATE)
    assert inodes(root) == before
    with (root / "step-1/model").open():  # so that its inode is not used again
        disk.put(STATE | {"step-1/model": File(b"other", T + 1.5)})
    after = inodes(root)
    assert after.pop("step-1/model") != before.pop("step-1/model")
    assert after == before


def test_what_was_there_before_the_first_is_removed(root: Path) -> None:
    (root / "old" / "deep").mkdir(parents=True)
    (root / "old" / "deep" / "file").touch()
    (root / "step-1").touch()
    Disk(root).put(STATE)
    assert look(root) == STATE


def keep_times(path: Path, change: Callable[[Path], object]) -> None:
    status = path.stat()
    change(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def put_in_its_place(root: Path, path: str, make: Callable[[Path], object]) -> None:
    """Rename what is there to ``<root>.old``, and make something else there."""
    there = root / path
    there.rename(f"{root}.old")
    make(there)


def exchange(one: Path, other: Path) -> None:
    spare = one.with_name("spare")
    one.rename(spare)
    other.rename(one)
    spare.rename(other)


VANDALS: dict[str, Callable[[Path], object]] = {
    "adds a file": lambda root: (root / "step-1/new").write_text("x"),
    "adds a directory": lambda root: (root / "x/y").mkdir(parents=True),
    "adds a pipe": lambda root: os.mkfifo(root / "pipe"),
    "removes a file": lambda root: (root / "step-1/model").unlink(),
    "removes a directory": lambda root: (root / "empty").rmdir(),
    "removes everything": shutil.rmtree,
    "puts a file in place of everything": lambda root: put_in_its_place(root, "", Path.touch),
    "puts a link in place of everything": lambda root: put_in_its_place(
        root, "", lambda path: path.symlink_to(f"{root}.old")
    ),
    "renames a directory": lambda root: (root / "step-1").rename(root / "step-1.corrupt"),
    "exchanges two files": lambda root: exchange(root / "step-1/model", root / "step-2/meta"),
    "writes into a file": lambda root: (root / "step-1/model").write_text("eno"),
    "writes into a file and sets its time back": lambda root: keep_times(
        root / "step-1/model", lambda path: path.write_text("eno")
    ),
    "touches a file": lambda root: (root / "step-1/model").touch(),
    "makes a file read-only": lambda root: (root / "step-1/model").chmod(0o400),
    "makes a directory unreadable": lambda root: (root / "step-1").chmod(0),
    "redirects a link": lambda root: put_in_its_place(root, "latest", lambda path: path.symlink_to("step-1")),
    "puts a link in place of a file": lambda root: put_in_its_place(
        root, "step-1/model", lambda path: path.symlink_to(f"{root}.old")
    ),
    "puts a directory in place of a file": lambda root: put_in_its_place(root, "step-1/model", Path.mkdir),
    "makes a second name for a file": lambda root: (root / "m").hardlink_to(root / "step-1/model"),
}


@pytest.mark.parametrize("vandal", VANDALS)
def test_a_reader_that(root: Path, vandal: str) -> None:
    disk = Disk(root)
    disk.put(STATE)
    VANDALS[vandal](root)
    disk.put(STATE)
    assert look(root) == STATE
    assert stat.S_IMODE((root / "step-1" / "model").stat().st_mode) == 0o600
    assert (root / "step-1" / "model").stat().st_nlink == 1


def test_a_distrusted_file_is_written_anew(root: Path) -> None:
    disk = Disk(root)
    disk.put(STATE)
    before = inodes(root)
    disk.distrust(["step-1/model", "absent"])
    with (root / "step-1/model").open():  # so that its inode is not used again
        disk.put(STATE)
    assert {path for path, inode in inodes(root).items() if before[path] != inode} == {"step-1/model"}


def test_names_that_are_no_text(root: Path) -> None:
    name = os.fsdecode(b"\xff\xfe")
    state: Visible = {name: Directory(), f"{name}/x": File(b"1", T), "y": Link(name)}
    Disk(root).put(state)
    assert look(root) == state
    assert os.listdir(os.fsencode(root / name)) == [b"x"]  # noqa: PTH208


def test_a_links_text_is_kept_as_it_stands(root: Path) -> None:
    state: Visible = {"a": Link("./b//c/../"), "z": Link("/absent/./x")}
    Disk(root).put(state)
    assert look(root) == state


def test_what_no_state_has_is_named(root: Path) -> None:
    root.mkdir()
    os.mkfifo(root / "pipe")
    with pytest.raises(RecordError, match=r"root/pipe is a p.*only files, directories and links"):
        look(root)
