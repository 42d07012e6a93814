"""Trouble of disks, hosts and neighbours in the middle of a save or a load: all ranks hear of it, nothing is harmed."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import resource
import shutil
import stat
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from checkpoints_fixture.ranks import ThreadExchange, all_of, run_ranks
from harness._tests.checkpoint_ranks import Witness, in_ranks, rank_here, save_steps, steps_in
from harness.checkpoint import files, points
from harness.checkpoint.format import FAILPOINTS, inspect
from harness.checkpoint.store import CheckpointStore, Saved
from harness.errors import LoadRefused, SaveFailed
from harness.wire import Kind

RANKS = 2


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_root(tmp_path / "checkpoints")


def make_root(root: Path) -> Path:
    """A directory with step 5, in which the next save is of step 10."""
    all_of(in_ranks(RANKS, root, lambda store, _: save_steps(store, 5)))
    return root


def save_10(root: Path) -> list[Any]:
    """How a save of step 10 ends on each rank."""

    def act(store: CheckpointStore, rank: int) -> Saved:
        store.load()
        return save_steps(store, 10)[0]

    return in_ranks(RANKS, root, act)


def is_saved_on_all(ends: list[Any]) -> bool:
    """Whether the save succeeded; all ranks must have been told the same."""
    if all(isinstance(end, Saved) for end in ends):
        return True
    assert [type(end) for end in ends] == [SaveFailed] * RANKS, ends
    assert str(ends[0]) == str(ends[1])
    return False


def check_it_goes_on(root: Path, *, step: int) -> None:
    """The next job loads ``step`` on all ranks, and saves."""

    def go_on(store: CheckpointStore, rank: int) -> None:
        loaded = store.load()
        assert loaded is not None
        assert (loaded.step, loaded.own) == (step, {"position": step})
        assert loaded.shared["model"]["weight"].tolist() == [float(step)] * 10
        save_steps(store, 15)

    all_of(in_ranks(RANKS, root, go_on))
    assert steps_in(root)[0] == 15
    assert {entry.verdict for entry in inspect(root)} == {"complete"}, "what was left behind is cleared"


# The disk


@contextmanager
def largest_file(limit_bytes: int) -> Iterator[None]:
    """The write that would make a file of this process larger fails (EFBIG; Python ignores SIGXFSZ)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full_at_any_file_fails_the_save_on_all_ranks(tmp_path: Path) -> None:
    undisturbed = make_root(tmp_path / "undisturbed")
    assert is_saved_on_all(save_10(undisturbed))
    sizes = sorted({path.stat().st_size for path in (undisturbed / "step-10").iterdir()})
    for limit_bytes in sorted({0, 1, 512, *sizes, *(size - 1 for size in sizes)}):
        root = make_root(tmp_path / f"{limit_bytes}")
        with largest_file(limit_bytes):
            ends = save_10(root)
        assert is_saved_on_all(ends) == (limit_bytes >= sizes[-1]), f"with at most {limit_bytes} bytes"
        if limit_bytes < sizes[-1]:
            assert "File too large" in str(ends[0])
            assert [entry.name for entry in inspect(root)] == ["step-5"], "what was written is taken away"
        check_it_goes_on(root, step=10 if limit_bytes >= sizes[-1] else 5)


class Failing:
    """``os.NAME`` whose k-th call with a file or directory that was written fails with EIO; it is done all the same."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, failing: int) -> None:
        self._call, self._failing = getattr(os, name), failing
        self._lock = threading.Lock()
        self.count = 0
        monkeypatch.setattr(os, name, self)

    def __call__(self, fd: int) -> None:
        is_directory = stat.S_ISDIR(os.fstat(fd).st_mode) and self._call.__name__ == "fsync"
        is_lock = Path(f"/proc/self/fd/{fd}").readlink().name == ".lock"
        is_written = is_directory or (fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY and not is_lock)
        self._call(fd)
        if is_written:
            with self._lock:
                self.count += 1
                number = self.count
            if number == self._failing:
                raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("call", ["fsync", "close"])
def test_an_error_at_any(call: str, tmp_path: Path) -> None:
    outcomes = []
    for number in itertools.count(1):
        root = make_root(tmp_path / f"{number}")
        with pytest.MonkeyPatch.context() as monkeypatch:
            failing = Failing(monkeypatch, call, number)
            ends = save_10(root)
        outcomes.append(is_saved_on_all(ends))
        check_it_goes_on(root, step=10 if outcomes[-1] else 5)
        if failing.count < number:
            break
        if not outcomes[-1]:
            assert "Input/output error" in str(ends[0])
    assert outcomes[-1], "nothing failed, and the save is refused"
    assert outcomes.count(False) >= (9 if call == "fsync" else 5), "each file and directory that a save writes counts"


LOSSES: dict[str, Callable[[Path], object]] = {
    "its bytes": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "its size": lambda path: os.truncate(path, 0),
    "half of it": lambda path: os.truncate(path, path.stat().st_size // 2),
    "its name": lambda path: path.unlink(),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_after_an_fsync_that_lied_a_power_cut_takes_from_a_file(
    loss: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was acknowledged can be lost then; what is left of it must not pass for a checkpoint."""
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", lambda fd: None)
        assert is_saved_on_all(save_10(root))
    names = sorted(path.name for path in (root / "step-10").iterdir())
    assert len(names) == 5
    for name in names:
        after = tmp_path / f"without-{name}"
        shutil.copytree(root, after, symlinks=True)
        LOSSES[loss](after / "step-10" / name)
        check_it_goes_on_beside_a_quarantined(after)


def check_it_goes_on_beside_a_quarantined(root: Path) -> None:
    for loaded in all_of(in_ranks(RANKS, root, lambda store, _: store.load())):
        assert loaded is not None
        assert (loaded.step, loaded.own) == (5, {"position": 5})
    assert [entry.verdict for entry in inspect(root)] == ["complete", "quarantined"]


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """Nothing can be made in the directory ``path``, not even by root."""
    get_flags, set_flags, immutable = 0x80086601, 0x40086602, 0x10  # linux/fs.h: FS_IOC_*FLAGS, FS_IMMUTABLE_FL
    if os.geteuid() != 0:
        mode = stat.S_IMODE(path.stat().st_mode)
        path.chmod(0o500)
        try:
            yield
        finally:
            path.chmod(mode)
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        (flags,) = struct.unpack("l", fcntl.ioctl(fd, get_flags, struct.pack("l", 0)))
        fcntl.ioctl(fd, set_flags, struct.pack("l", flags | immutable))
    except OSError as error:
        os.close(fd)
        pytest.skip(f"root writes to read-only directories, and this file system has no immutable ones ({error})")
    try:
        yield
    finally:
        fcntl.ioctl(fd, set_flags, struct.pack("l", flags))
        os.close(fd)


def test_a_directory_that_became_read_only_fails_the_save_and_never_silently(root: Path) -> None:
    with read_only(root):
        ends = save_10(root)
    assert not is_saved_on_all(ends)
    assert "PermissionError" in str(ends[0])
    check_it_goes_on(root, step=5)


# The ranks


class Death(BaseException):
    """A rank is gone in the middle of what it was doing."""


class Reaper(Witness):
    """Ends ``rank`` at ``failpoint``, as far as a thread can be ended."""

    def __init__(self, rank: int, failpoint: str) -> None:
        super().__init__()
        self._dying, self._failpoint = rank, failpoint

    def reach(self, failpoint: str) -> None:
        super().reach(failpoint)
        if self.is_armed and (self.rank, failpoint) == (self._dying, self._failpoint):
            raise Death


DEATHS = [
    (rank, f"{name}:{moment}")
    for name, failpoint in FAILPOINTS.items()
    if failpoint.during == "save" and not name.startswith("ckpt.retention.")  # a save of two deletes nothing
    for moment in ("before", "after")
    for rank in ((0, 1) if failpoint.writer == "every" else (0,))
]


@pytest.mark.parametrize(("dying", "failpoint"), DEATHS)
def test_a_rank_that_dies(dying: int, failpoint: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reaper = Reaper(dying, failpoint)
    monkeypatch.setattr(points, "listener", reaper)

    def act(exchange: ThreadExchange) -> Saved | None:
        rank_here.set(exchange.rank)
        store = CheckpointStore(root, exchange=exchange)
        store.load()
        try:
            return save_steps(store, 10)[0]
        except Death:
            exchange.leave()
            return None

    ends = run_ranks(RANKS, act)
    assert ends[dying] is None, "the failpoint was not reached"
    reaper.is_armed = False
    assert isinstance(ends[1 - dying], Saved | threading.BrokenBarrierError), ends
    acknowledged = [rank for rank, kind, step, _ in reaper.told if (kind, step) == (Kind.SAVE_END, 10)]
    steps = {loaded.step for loaded in all_of(in_ranks(RANKS, root, lambda store, _: store.load()))}
    assert len(steps) == 1
    assert steps == {10} if acknowledged else steps <= {5, 10}
    check_it_goes_on(root, step=steps.pop())


class Late:
    """A network file system that shows rank 1 a name of the directory only when it has looked for it often enough."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, prefix: str, looks: float) -> None:
        self._exists, self._open_directory = files.exists, files.open_directory
        self._prefix, self._looks_left = prefix, looks
        monkeypatch.setattr(files, "exists", self.exists)
        monkeypatch.setattr(files, "open_directory", self.open_directory)

    def exists(self, dir_fd: int, name: str) -> bool:
        if self._hides(name):
            self._looks_left -= 1
            return False
        return self._exists(dir_fd, name)

    def open_directory(self, dir_fd: int, name: str) -> Any:
        if self._hides(name):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return self._open_directory(dir_fd, name)

    def _hides(self, name: str) -> bool:
        return self._looks_left > 0 and rank_here.get() == 1 and name.startswith(self._prefix)


@pytest.mark.parametrize("prefix", [".step-10.tmp-", "step-10", "step-5"])
def test_a_directory_that_another_host_sees_late_is_waited_for(
    prefix: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if prefix == "step-10":
        assert is_saved_on_all(save_10(root))
    Late(monkeypatch, prefix, looks=3)
    if prefix != "step-10":
        assert is_saved_on_all(save_10(root))
    check_it_goes_on(root, step=10)
    assert [entry.name for entry in inspect(root)] == ["step-15", "step-10", "step-5"], "nothing was set aside"


def test_a_directory_that_another_host_never_sees_is_refused_and_nothing_is_set_aside(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_saved_on_all(save_10(root))
    monkeypatch.setattr(files, "SEEN_S", 0.1)
    Late(monkeypatch, "step-10", looks=float("inf"))
    for end in in_ranks(RANKS, root, lambda store, _: store.load()):
        assert isinstance(end, LoadRefused)
        assert f"rank 1: FileNotFoundError: {root} does not show step-10 on this host within 0.1 s" in str(end)
    assert [entry.name for entry in inspect(root)] == ["step-10", "step-5"]


def test_a_save_whose_directory_another_host_never_sees_fails_on_all_ranks(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SEEN_S", 0.1)
    with monkeypatch.context() as patched:
        Late(patched, ".step-10.tmp-", looks=float("inf"))
        ends = save_10(root)
    assert not is_saved_on_all(ends)
    assert "give a directory that all ranks share" in str(ends[0])
    check_it_goes_on(root, step=5)


# The neighbours


class Meanwhile(Witness):
    """Something else happens when rank 0 reaches ``failpoint`` for the first time."""

    def __init__(self, failpoint: str, happens: Callable[[], object]) -> None:
        super().__init__()
        self._failpoint, self._happens = failpoint, happens

    def reach(self, failpoint: str) -> None:
        super().reach(failpoint)
        if self.is_armed and failpoint == self._failpoint:
            self.is_armed = False
            self._happens()


def test_a_zombie_whose_directory_was_taken_over_while_it_wrote_publishes_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take_over() -> None:
        (root / "ATTEMPT").write_text('{"attempt": "1-00000000000000bb"}')

    monkeypatch.setattr(points, "listener", Meanwhile("ckpt.complete.fsync:after", take_over))
    ends = save_10(root)
    assert not is_saved_on_all(ends)
    assert "1-00000000000000bb has taken this directory over" in str(ends[0])
    assert [entry.name for entry in inspect(root)] == ["step-5"]


def test_what_has_appeared_under_the_name_of_a_save_is_not_overwritten(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def appear() -> None:
        (root / "step-10").mkdir()
        (root / "step-10" / "model.pt").write_bytes(b"precious")

    monkeypatch.setattr(points, "listener", Meanwhile("ckpt.publish.rename:before", appear))
    ends = save_10(root)
    assert not is_saved_on_all(ends)
    assert "'step-10'" in str(ends[0])
    assert (root / "step-10" / "model.pt").read_bytes() == b"precious"
    assert steps_in(root) == [5]
