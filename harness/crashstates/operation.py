"""What a save did to the file tree, operation by operation, as its system calls tell.

Objects are numbered: a file or directory keeps its number when it is renamed. Object 0 is the checkpoint directory,
there and empty before the first save. An entry is a name in a directory; what a save did elsewhere (a temporary file
that it then moves in) is followed as well, in directories that cannot be reached from object 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

ROOT = 0


class Kind(StrEnum):
    """Kinds of operation; beside each the fields that it has."""

    BEGIN = "begin"  # step: this rank calls save(directory, step)
    ACK = "ack"  # step: save returned on this rank
    CREATE = "create"  # directory, name, object: a new, empty file
    MKDIR = "mkdir"  # directory, name, object
    SYMLINK = "symlink"  # directory, name, object, text
    LINK = "link"  # directory, name, object: one more name of a file
    RENAME = "rename"  # directory, name -> to_directory, to_name, object; replaced: what stood there, or None
    UNLINK = "unlink"  # directory, name, object: a file or a link
    RMDIR = "rmdir"  # directory, name, object
    WRITE = "write"  # object, offset, data; source: path of the file that the kernel copied it from, else empty
    TRUNCATE = "truncate"  # object, size_bytes: shorter or longer
    SYNC = "sync"  # object: fsync or fdatasync of a file or a directory
    SYNC_ALL = "sync_all"  # sync, syncfs


CHANGES_ENTRIES = frozenset({Kind.CREATE, Kind.MKDIR, Kind.SYMLINK, Kind.LINK, Kind.RENAME, Kind.UNLINK, Kind.RMDIR})
CHANGES_DATA = frozenset({Kind.WRITE, Kind.TRUNCATE})
CHANGES = CHANGES_ENTRIES | CHANGES_DATA
SYNCS = frozenset({Kind.SYNC, Kind.SYNC_ALL})


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing that one rank did; which fields it has beside the first six is written at ``Kind``.

    Attributes:
        index: its place in the recording, from 0; one total order that agrees with ``known``.
        call: the system call's name; ``save`` for BEGIN and ACK.
        path: for people: relative to the checkpoint directory at the time of the call, absolute if outside it.
        site: ``file:line`` of the user's file that was running; None where it could not be had.
        t_s: seconds since the epoch; files are given this time, since some readers go by it.
        known: per rank, how many of its operations had certainly happened before this one: what a crash may not take
            away while it keeps this one.
    """

    index: int
    rank: int
    kind: Kind
    call: str
    path: str
    site: str | None
    t_s: float
    known: tuple[int, ...]
    directory: int = -1
    name: str = ""
    to_directory: int = -1
    to_name: str = ""
    object: int = -1
    replaced: int | None = None
    offset: int = 0
    data: bytes = b""
    source: str = ""
    size_bytes: int = 0
    text: str = ""
    step: int = -1


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What saves of ``steps``, one after the other, did on all ranks.

    Attributes:
        root: absolute path of the checkpoint directory that was recorded.
        directories: the objects that are directories.
        problems: why the record cannot be relied on, each a sentence (memory-mapped writing, io_uring, files left
            outside the directory, a result that differs from the real directory); empty: it can be.
    """

    root: str
    ranks: int
    steps: tuple[int, ...]
    operations: tuple[Operation, ...]
    directories: frozenset[int]
    problems: tuple[str, ...] = ()
