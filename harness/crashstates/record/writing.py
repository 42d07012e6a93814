"""What calls do to the bytes of files: write, truncate, copy, sync."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from harness.crashstates.operation import CHANGES_DATA, Kind
from harness.crashstates.record.descriptors import Description
from harness.crashstates.record.follow import CannotFollow, Effect, Follower, number_of, words
from harness.crashstates.record.namespace import Sort
from harness.crashstates.record.strace import Call, Fd, Value
from harness.crashstates.tree import changed

_SYNCING = frozenset({"RWF_SYNC", "RWF_DSYNC"})
_CLONES = ("FICLONE", "FICLONERANGE", "BTRFS_IOC_CLONE", "BTRFS_IOC_CLONE_RANGE")


def resize(at: Follower, call: Call, number: int, size_bytes: int) -> None:
    """A file has been made shorter or longer; nothing happens if it already has that size."""
    thing = at.namespace.objects[number]
    if thing.sort is not Sort.FILE:
        return
    if not thing.is_ours:
        at.changed_outside.setdefault(number, call.name)
    elif size_bytes != thing.size_bytes:
        thing.size_bytes = size_bytes
        at.emit(call, Kind.TRUNCATE, at.namespace.shown_object(number), object=number, size_bytes=size_bytes)


def _put(at: Follower, call: Call, description: Description, offset: int | None, data: bytes, source: str = "") -> None:
    """A file has been given ``data`` at ``offset``, copied from ``source`` if the kernel did it."""
    number = description.object
    thing = at.namespace.objects[number]
    if thing.sort is not Sort.FILE or not data:
        return
    if not thing.is_ours:
        if offset is not None and not description.appends:
            at.changed_outside.setdefault(number, call.name)
        return
    shown = at.namespace.shown_object(number)
    if offset is None:
        at.unsure[number] = f"{shown} is written through a descriptor that was opened before the save"
        return
    thing.size_bytes = max(thing.size_bytes, offset + len(data))
    at.emit(call, Kind.WRITE, shown, object=number, offset=offset, data=data, source=source)


def _written(at: Follower, call: Call, fd: Value, data: bytes, position: int | None = None, source: str = "") -> None:
    """``data`` was written at ``position``, or where the file stood."""
    description = at.file(call, fd)
    offset = description.offset if position is None else position
    if description.appends:  # pwrite(2) too, on Linux
        offset = at.namespace.objects[description.object].size_bytes
    _put(at, call, description, offset, data, source)
    if position is None and offset is not None:
        description.offset = offset + len(data)
    flags = words(call.arguments[-1]) if call.name == "pwritev2" else frozenset()
    if description.syncs or flags & _SYNCING:
        _sync_object(at, call, description.object)


@contextmanager
def _unsure_of(at: Follower, call: Call, number: int) -> Iterator[None]:
    """What cannot be followed in here matters only if the file comes to be in the checkpoint directory."""
    try:
        yield
    except CannotFollow as trouble:
        at.unsure.setdefault(number, f"{trouble} ({call.name}{at.where(call)})")


def _buffer(value: Value, size_bytes: int) -> bytes:
    """The first ``size_bytes`` of a buffer, or of several."""
    parts = [value]
    if isinstance(value, list):
        parts = [part.get("iov_base") for part in value if isinstance(part, dict)]
    data = b"".join(part for part in parts if isinstance(part, bytes))[:size_bytes]
    if len(data) < size_bytes:
        raise CannotFollow(f"a write of {size_bytes} bytes is longer than the record keeps")
    return data


def _is_file(fd: Value) -> bool:
    return isinstance(fd, Fd) and fd.path.startswith("/")


def write(at: Follower, call: Call) -> None:
    fd, buffer = call.arguments[:2]
    if not _is_file(fd):
        return
    size_bytes = number_of(call.result)
    if isinstance(fd, Fd) and fd.path == "/dev/null":
        at.hear(call, _buffer(buffer, size_bytes))
        return
    with _unsure_of(at, call, at.file(call, fd).object):
        _written(at, call, fd, _buffer(buffer, size_bytes))


def pwrite(at: Follower, call: Call) -> None:
    fd, buffer = call.arguments[:2]
    position = number_of(call.arguments[3])
    with _unsure_of(at, call, at.file(call, fd).object):
        _written(at, call, fd, _buffer(buffer, number_of(call.result)), None if position == -1 else position)


def read(at: Follower, call: Call) -> None:
    fd, size_bytes = call.arguments[0], number_of(call.result)
    if _is_file(fd):
        description = at.file(call, fd)
        if description.offset is not None:
            description.offset += size_bytes
        at.learn_bytes(call, description.object)
    elif isinstance(fd, Fd) and not any("MSG_PEEK" in words(argument) for argument in call.arguments):
        at.clocks.receive(at.process(call).rank, fd.path, size_bytes, at.apart(call))


def lseek(at: Follower, call: Call) -> None:
    if _is_file(call.arguments[0]):
        at.file(call, call.arguments[0]).offset = call.result


def _bytes_of(at: Follower, call: Call, number: int, offset: int, size_bytes: int) -> bytes:
    """What a file holds now.

    Raises:
        CannotFollow: it is not ours, and has changed since.
    """
    thing = at.namespace.objects[number]
    at.learn_bytes(call, number)
    if thing.is_ours:
        if number in at.unsure:
            raise CannotFollow(f"a copy is made of a file whose bytes are not known: {at.unsure[number]}")
        data = b""
        for op in at.operations:
            if op.kind in CHANGES_DATA and op.object == number:
                data = changed(data, op)
    else:
        path = Path(at.namespace.path(number))
        try:
            with path.open("rb") as file:
                data = file.read()
                is_old = os.fstat(file.fileno()).st_ctime < at.began_s
        except OSError as error:
            raise CannotFollow(f"a copy is made of {path}, which cannot be read any more: {error.strerror}") from error
        if not is_old:
            raise CannotFollow(f"a copy is made of {path}, which has changed since")
    return data[offset : offset + size_bytes]


def _copy(at: Follower, call: Call, source: Value, source_offset: Value, to: Value, to_offset: Value) -> None:
    """Bytes were copied from descriptor to descriptor in the kernel; an offset of NULL moves the descriptor's own."""
    size_bytes = number_of(call.result)
    start = _offset(source_offset)
    reader = at.file(call, source) if _is_file(source) else None
    if reader and start is None:
        start = reader.offset
        if start is not None:
            reader.offset = start + size_bytes
    if not _is_file(to):
        return
    writer = at.file(call, to)
    if at.namespace.objects[writer.object].sort is not Sort.FILE or not size_bytes:
        return
    with _unsure_of(at, call, writer.object):
        if reader is None or start is None:
            shown = at.namespace.shown_object(writer.object)
            raise CannotFollow(f"{shown} is filled from a pipe or an unknown file, which the record cannot follow")
        data = _bytes_of(at, call, reader.object, start, size_bytes)
        if len(data) < size_bytes:
            raise CannotFollow(f"a copy of {size_bytes} bytes is made of a file that has {len(data)}")
        source_shown = at.namespace.shown_object(reader.object)
        _written(at, call, to, data, _offset(to_offset), source_shown)


def _offset(value: Value) -> int | None:
    """Of ``NULL`` or ``[5]``."""
    return number_of(value[0]) if isinstance(value, list) else None


def sendfile(at: Follower, call: Call) -> None:
    to, source, offset = call.arguments[:3]
    _copy(at, call, source, offset, to, None)


def copy_file_range(at: Follower, call: Call) -> None:
    source, source_offset, to, to_offset = call.arguments[:4]
    _copy(at, call, source, source_offset, to, to_offset)


def ioctl(at: Follower, call: Call) -> None:
    """Of the many, those by which two files share their blocks."""
    command = call.arguments[1]
    if not isinstance(command, str) or not any(name in command.split() for name in _CLONES):
        return
    to, source = at.file(call, call.arguments[0]), call.arguments[2]
    if isinstance(source, dict):
        shown = at.namespace.shown_object(to.object)
        raise CannotFollow(
            f"{shown} shares blocks with a part of a file (FICLONERANGE), which the record cannot follow"
        )
    number = at.file(call, source if isinstance(source, Fd) else Fd(number_of(source), "")).object
    data = _bytes_of(at, call, number, 0, 1 << 62)
    _put(at, call, to, 0, data, at.namespace.shown_object(number))
    resize(at, call, to.object, len(data))


def ftruncate(at: Follower, call: Call) -> None:
    resize(at, call, at.file(call, call.arguments[0]).object, number_of(call.arguments[1]))


def truncate(at: Follower, call: Call) -> None:
    number = at.existing(call, call.arguments[0], follows_last=True).object
    assert number is not None
    resize(at, call, number, number_of(call.arguments[1]))


def fallocate(at: Follower, call: Call) -> None:
    description = at.file(call, call.arguments[0])
    modes = words(call.arguments[1])
    offset, size_bytes = number_of(call.arguments[2]), number_of(call.arguments[3])
    thing = at.namespace.objects[description.object]
    if modes & {"FALLOC_FL_COLLAPSE_RANGE", "FALLOC_FL_INSERT_RANGE"}:
        raise CannotFollow("a part of a file is cut out or put in (fallocate), which the record cannot follow")
    end = offset + size_bytes
    keeps_size = "FALLOC_FL_KEEP_SIZE" in modes
    if modes & {"FALLOC_FL_PUNCH_HOLE", "FALLOC_FL_ZERO_RANGE"}:
        _put(at, call, description, offset, bytes(max(0, min(end, thing.size_bytes) - offset)))
    if not keeps_size and end > thing.size_bytes:
        resize(at, call, thing.number, end)


def _sync_object(at: Follower, call: Call, number: int) -> None:
    at.emit(call, Kind.SYNC, at.namespace.shown_object(number), object=number)


def fsync(at: Follower, call: Call) -> None:
    if _is_file(call.arguments[0]):
        _sync_object(at, call, at.file(call, call.arguments[0]).object)


def sync(at: Follower, call: Call) -> None:
    at.emit(call, Kind.SYNC_ALL, "")


def syncfs(at: Follower, call: Call) -> None:
    """Of the checkpoint's file system only."""
    path = Path(at.namespace.path(at.file(call, call.arguments[0]).object))
    there = next(place for place in (path, *path.parents) if place.exists())
    if there.stat().st_dev == Path(at.namespace.root).stat().st_dev:
        at.emit(call, Kind.SYNC_ALL, "")


def mmap(at: Follower, call: Call) -> None:
    """A file that is written through memory leaves no calls."""
    _, _, protection, flags, fd, _ = call.arguments
    if _is_file(fd) and "PROT_WRITE" in words(protection) and words(flags) & {"MAP_SHARED", "MAP_SHARED_VALIDATE"}:
        number = at.file(call, fd).object
        shown = at.namespace.shown_object(number)
        at.unsure[number] = f"{shown} is written through a memory map{at.where(call)}, which the record cannot follow"


def io_uring_setup(at: Follower, call: Call) -> None:
    raise CannotFollow("the saver uses io_uring, which the record cannot follow")


EFFECTS: Mapping[str, Effect] = {
    "write": write,
    "writev": write,
    "pwrite64": pwrite,
    "pwritev": pwrite,
    "pwritev2": pwrite,
    "read": read,
    "readv": read,
    "recvfrom": read,
    "recvmsg": read,
    "lseek": lseek,
    "sendfile": sendfile,
    "copy_file_range": copy_file_range,
    "splice": copy_file_range,
    "ioctl": ioctl,
    "truncate": truncate,
    "ftruncate": ftruncate,
    "fallocate": fallocate,
    "fsync": fsync,
    "fdatasync": fsync,
    "sync": sync,
    "syncfs": syncfs,
    "mmap": mmap,
    "io_uring_setup": io_uring_setup,
}
