"""Descriptors that follow no link, writes that hash as they go, directories made durable.

Everything below a checkpoint root is opened by one path component relative to an open directory, with ``O_NOFOLLOW``:
a link that someone put there leads nowhere. New directories are 0700, new files 0600 and never existed before.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from harness.checkpoint import points

PIECE_BYTES = 1 << 20
_READ_BYTES = 1 << 16  # of small files
SEEN_S = 60.0  # for as long NFS may go on showing a directory as it was (acdirmax)
LOOK_AGAIN_S = 0.05
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO for reading would wait for a writer that never comes. O_NOCTTY: a terminal
# shall not become this process's own
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class NotPlain(OSError):
    """A link, a device or a directory stands where a plain file or a directory should be."""


@contextmanager
def open_root(root: Path) -> Iterator[int]:
    """A descriptor of the checkpoint root; the path to it may well contain links, the user chose it."""
    fd = os.open(root, _DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def open_directory(parent_fd: int, name: str) -> Iterator[int]:
    """A descriptor of the directory ``name``.

    Raises:
        NotPlain: it is a link or a file.
        FileNotFoundError: there is none.
    """
    try:
        fd = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent_fd)
    except NotADirectoryError:
        raise NotPlain(f"{name} is {kind_of(parent_fd, name)}, not a directory") from None
    try:
        yield fd
    finally:
        os.close(fd)


def await_name(root: Path, name: str) -> None:
    """Wait until this rank sees what rank 0 has made in ``root``: a network file system may show it later.

    Raises:
        FileNotFoundError: it does not within ``SEEN_S``.
    """
    ends = time.monotonic() + SEEN_S
    while True:
        with open_root(root) as root_fd:  # opened anew: that is when a network file system looks again
            if exists(root_fd, name):
                return
        if time.monotonic() > ends:
            raise FileNotFoundError(
                f"{root} does not show {name} on this host within {SEEN_S} s, and rank 0 sees it; "
                "give a directory that all ranks share"
            )
        time.sleep(LOOK_AGAIN_S)


class Opened(NamedTuple):
    """A plain file that is open to be read."""

    fd: int
    size_bytes: int


def open_to_read(dir_fd: int, name: str) -> Opened:
    """The plain file ``name``, to be closed by the caller.

    Raises:
        NotPlain: it is a link, or no plain file.
        FileNotFoundError: there is none.
    """
    try:
        fd = os.open(name, _READ, dir_fd=dir_fd)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):  # a link; a socket
            raise
        raise NotPlain(f"{name} is {kind_of(dir_fd, name)}, not a plain file") from None
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise NotPlain(f"{name} is {kind_of(dir_fd, name)}, not a plain file")
    return Opened(fd, status.st_size)


def kind_of(dir_fd: int, name: str) -> str:
    """A word for what ``name`` is, for messages."""
    mode = os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    if stat.S_ISREG(mode):
        return "a plain file"
    return "a directory" if stat.S_ISDIR(mode) else "a special file"


def read_small(dir_fd: int, name: str, limit_bytes: int) -> bytes:
    """The bytes of a small plain file.

    Raises:
        NotPlain: it is no plain file, or longer than ``limit_bytes``.
        OSError: it cannot be read.
    """
    file = open_to_read(dir_fd, name)
    try:
        if file.size_bytes > limit_bytes:
            raise NotPlain(f"{name} is longer than {limit_bytes} bytes")
        return read(file)
    finally:
        os.close(file.fd)


def read(file: Opened) -> bytes:
    """What was in a file when it was opened; with no other system call than the reads."""
    pieces: list[bytes] = []
    rest_bytes = file.size_bytes
    while rest_bytes > 0 and (piece := os.read(file.fd, min(rest_bytes, _READ_BYTES))):
        pieces.append(piece)
        rest_bytes -= len(piece)
    return b"".join(pieces)


def digest_of(file: Opened) -> str:
    """sha256 of what was in a file when it was opened."""
    hasher = sha256()
    piece = bytearray(min(PIECE_BYTES, file.size_bytes))
    rest_bytes = file.size_bytes
    while rest_bytes > 0 and (got := os.readv(file.fd, [memoryview(piece)[:rest_bytes]])):
        hasher.update(memoryview(piece)[:got])
        rest_bytes -= got
    return hasher.hexdigest()


def create(dir_fd: int, name: str) -> int:
    """A descriptor of a new, empty file to write."""
    return os.open(name, _CREATE, 0o600, dir_fd=dir_fd)


def write_new(dir_fd: int, name: str, data: bytes, failpoint: str) -> None:
    """Write a new file and make it durable, as failpoints ``FAILPOINT.write`` and ``FAILPOINT.fsync``."""
    fd = create(dir_fd, name)
    try:
        points.write(f"{failpoint}.write", fd, data)
        points.around(f"{failpoint}.fsync", os.fsync, fd)
    finally:
        os.close(fd)  # close reports what the file system held back


class HashingWriter:
    """A file for ``torch.save``: hashes what passes, so that nothing has to be read back.

    A large tensor is written straight from its memory while a second thread hashes the same memory; what is smaller
    is gathered. Writes are of at most ``PIECE_BYTES``, each a failpoint: up to a megabyte a file is one write.

    Attributes:
        size_bytes: what was given to ``write`` so far.
    """

    def __init__(self, fd: int, failpoint: str) -> None:
        self._fd = fd
        self._failpoint = failpoint
        self._hasher = sha256()
        self._gathered = bytearray()
        self._put_bytes = 0
        self.size_bytes = 0

    def write(self, data: bytes | memoryview) -> int:
        if len(self._gathered) + len(data) > PIECE_BYTES:
            self.finish()
        if len(data) < PIECE_BYTES:
            self._gathered += data
        else:
            # A plain thread: an executor takes no work any more once the interpreter has begun to end.
            hashing = threading.Thread(target=self._hasher.update, args=(data,), name="checkpoint-hash")
            hashing.start()
            try:
                self._put(memoryview(data))
            finally:
                hashing.join()  # the memory is the caller's again
        self.size_bytes += len(data)
        return len(data)

    def flush(self) -> None:
        """Nothing: ``torch.save`` calls it at its end, ``finish`` writes what was gathered."""

    def finish(self) -> None:
        """Write what was gathered last, which may be all there is."""
        if self._gathered:
            gathered, self._gathered = self._gathered, bytearray()
            self._hasher.update(gathered)
            self._put(memoryview(gathered))

    def hexdigest(self) -> str:
        """sha256 of all that was written."""
        return self._hasher.hexdigest()

    def _put(self, data: memoryview) -> None:
        for start in range(0, len(data), PIECE_BYTES):
            piece = data[start : start + PIECE_BYTES]
            points.write(self._failpoint, self._fd, piece)
            # Linux begins to write the piece out now, so that the fsync at the end has less to wait for.
            os.posix_fadvise(self._fd, self._put_bytes, len(piece), os.POSIX_FADV_DONTNEED)
            self._put_bytes += len(piece)


def list_names(dir_fd: int) -> list[str]:
    """The names in a directory, sorted."""
    return sorted(os.listdir(dir_fd))


def rename(dir_fd: int, old: str, new: str) -> None:
    """Rename within one directory. Not durable until the directory is synced.

    POSIX lets a directory replace only an empty one, so that a checkpoint can never be overwritten by this.
    """
    os.rename(old, new, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)


def exists(dir_fd: int, name: str) -> bool:
    """Whether there is anything of this name, a dangling link included."""
    try:
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def free_name(dir_fd: int, name: str) -> str:
    """``name``, or the first of ``name-2``, ``name-3``, ... that is not taken."""
    candidate, number = name, 1
    while exists(dir_fd, candidate):
        number += 1
        candidate = f"{name}-{number}"
    return candidate
