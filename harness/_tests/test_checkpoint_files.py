"""Writing with a hash on the way, and descriptors that follow no link."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.checkpoint import files, points

PIECE = files.PIECE_BYTES


@pytest.fixture
def dir_fd(tmp_path: Path) -> Iterator[int]:
    with files.open_root(tmp_path) as fd:
        yield fd


@pytest.mark.parametrize(
    "sizes",
    [
        [],
        [1],
        [PIECE - 1],
        [PIECE],
        [PIECE + 1],
        [100, PIECE, 7],
        [3 * PIECE + 5, 2],
        [1000] * 3000,
        [1000, 20 * PIECE + 1, 500, 3 * PIECE],
    ],
    ids=[
        "nothing",
        "a byte",
        "a byte less",
        "one piece",
        "a byte more",
        "across",
        "three",
        "many small",
        "large ones between small ones",
    ],
)
def test_what_is_hashed_is_what_is_in_the_file(sizes: list[int], dir_fd: int, tmp_path: Path) -> None:
    data = os.urandom(sum(sizes))
    fd = files.create(dir_fd, "model.pt")
    writer = files.HashingWriter(fd, "ckpt.shard.write")
    start = 0
    for size in sizes:
        given = bytearray(memoryview(data)[start : start + size])
        assert writer.write(memoryview(given)) == size
        given[:] = bytes(size)  # the memory is the caller's again
        start += size
    writer.finish()
    assert writer.hexdigest() == hashlib.sha256(data).hexdigest()
    assert writer.size_bytes == len(data)
    os.close(fd)
    assert (tmp_path / "model.pt").read_bytes() == data


def test_a_piece_is_one_failpoint(dir_fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    class Listener:
        def reach(self, failpoint: str) -> None:
            seen.append(failpoint)

        def part(self, name: str, size_bytes: int) -> int | None:
            seen.append(f"{size_bytes}")
            return None

        def tell(self, *_: Any, **__: Any) -> None: ...

    monkeypatch.setattr(points, "listener", Listener())
    fd = files.create(dir_fd, "model.pt")
    writer = files.HashingWriter(fd, "w")
    writer.write(bytes(PIECE + 3))
    writer.finish()
    os.close(fd)
    assert seen == ["w:before", str(PIECE), "w:after", "w:before", "3", "w:after"]


def test_short_writes_are_continued(dir_fd: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, memoryview(data)[:7]))
    files.write_new(dir_fd, "small", b"twenty bytes exactly", "ckpt.complete")
    assert (tmp_path / "small").read_bytes() == b"twenty bytes exactly"


@pytest.mark.parametrize("kind", ["a symbolic link", "a directory", "a special file"])
def test_only_plain_files_are_read(kind: str, dir_fd: int, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("secret")
    match kind:
        case "a symbolic link":
            (tmp_path / "x").symlink_to("target")
        case "a directory":
            (tmp_path / "x").mkdir()
        case _:
            os.mkfifo(tmp_path / "x")
    with pytest.raises(files.NotPlain, match=f"x is {kind}, not a plain file"):
        files.read_small(dir_fd, "x", 100)


def test_a_device_is_not_opened(dir_fd: int, tmp_path: Path) -> None:
    try:
        os.mknod(tmp_path / "x", 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # as /dev/zero, which never ends
    except PermissionError:
        pytest.skip("needs the right to make device nodes (CAP_MKNOD)")
    with pytest.raises(files.NotPlain, match="x is a special file, not a plain file"):
        files.read_small(dir_fd, "x", 100)


def test_a_file_longer_than_allowed_is_not_read(dir_fd: int, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(101))
    with pytest.raises(files.NotPlain, match="longer than 100 bytes"):
        files.read_small(dir_fd, "x", 100)


def test_nothing_that_exists_is_overwritten(dir_fd: int, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("first")
    with pytest.raises(FileExistsError):
        files.write_new(dir_fd, "x", b"second", "ckpt.complete")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    with pytest.raises(OSError, match="not empty"):
        files.rename(dir_fd, "a", "b")


def test_a_free_name_is_not_taken(dir_fd: int, tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to("nowhere")
    (tmp_path / "x-2").touch()
    assert files.free_name(dir_fd, "x") == "x-3"
    assert files.free_name(dir_fd, "y") == "y"
