"""What calls do to descriptors and processes: open, close, duplicate, fork."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping

from harness.crashstates.operation import Kind
from harness.crashstates.record.descriptors import Description
from harness.crashstates.record.follow import FORKS, Effect, Follower, number_of, words
from harness.crashstates.record.namespace import LostTrack, Place, Sort
from harness.crashstates.record.strace import Call, Fd, Value
from harness.crashstates.record.writing import resize

_NOT_ON_DISK = re.compile(r"/(?:dev|proc|sys)/")


def _open(at: Follower, call: Call, directory: Value, path: Value, flags_text: Value) -> None:
    flags = words(flags_text)
    space, number = at.namespace, number_of(call.result)
    is_certainly_new = flags >= {"O_CREAT", "O_EXCL"}
    place = at.place(call, path, directory, follows_last="O_NOFOLLOW" not in flags)
    if "O_TMPFILE" in flags:
        object_ = space.make_nowhere()
        _created(at, call, space.place_of(object_))
    elif is_certainly_new or ("O_CREAT" in flags and (place.object is None or _is_born_since(at, place))):
        object_ = space.make(Sort.FILE, place.directory, place.name)
        _created(at, call, place)
    elif place.object is None:
        if space.objects[place.directory].is_ours:
            raise LostTrack(f"{space.shown(place.directory, place.name)} is not there")
        object_ = space.make_unknown(place.name)  # one of the system's, gone by now
    else:
        object_ = place.object
        if "O_TRUNC" in flags:
            resize(at, call, object_, 0)
    description = Description(object_, 0, "O_APPEND" in flags, bool(flags & {"O_SYNC", "O_DSYNC"}))
    at.descriptors(call).put(number, description, closes="O_CLOEXEC" in flags)


def _created(at: Follower, call: Call, place: Place) -> None:
    number = at.namespace.entries[place.directory, place.name]
    shown = at.namespace.shown(place.directory, place.name)
    at.emit(call, Kind.CREATE, shown, directory=place.directory, name=place.name, object=number)


def _is_born_since(at: Follower, place: Place) -> bool:
    """Whether a file that is not ours was made while we recorded, which O_CREAT alone does not tell."""
    assert place.object is not None
    thing = at.namespace.objects[place.object]
    if thing.is_ours or thing.sort is not Sort.FILE:
        return False
    path = at.namespace.path(thing.number)
    return not _NOT_ON_DISK.match(path) and _birth_s(path) >= at.began_s


def _birth_s(path: str) -> float:
    """When a file was made, in seconds since the epoch; 0 if that cannot be had. Python has no call for it."""
    done = subprocess.run(["stat", "--format=%.W", path], capture_output=True, text=True, check=False)
    try:
        return float(done.stdout)
    except ValueError:
        return 0.0


def open_(at: Follower, call: Call) -> None:
    _open(at, call, None, call.arguments[0], call.arguments[1])


def creat(at: Follower, call: Call) -> None:
    _open(at, call, None, call.arguments[0], "O_CREAT|O_WRONLY|O_TRUNC")


def openat(at: Follower, call: Call) -> None:
    _open(at, call, call.arguments[0], call.arguments[1], call.arguments[2])


def openat2(at: Follower, call: Call) -> None:
    how = call.arguments[2]
    _open(at, call, call.arguments[0], call.arguments[1], how.get("flags") if isinstance(how, dict) else None)


def close(at: Follower, call: Call) -> None:
    at.descriptors(call).drop(number_of(call.arguments[0]))


def close_range(at: Follower, call: Call) -> None:
    descriptors = at.descriptors(call)
    first, last = number_of(call.arguments[0]), number_of(call.arguments[1])
    for number in [number for number in descriptors.files if first <= number <= last]:
        if "CLOSE_RANGE_CLOEXEC" in words(call.arguments[2]):
            descriptors.set_closing(number, True)
        else:
            descriptors.drop(number)


def _duplicate(at: Follower, old: int, new: Value, call: Call, *, closes: bool) -> None:
    descriptors = at.descriptors(call)
    if old in descriptors.files:
        descriptors.put(number_of(new), descriptors.files[old], closes=closes)
    else:
        descriptors.drop(number_of(new))


def dup(at: Follower, call: Call) -> None:
    old = number_of(call.arguments[0])
    if old != call.result:
        _duplicate(at, old, call.result, call, closes="O_CLOEXEC" in words(call.arguments[-1]))


def fcntl(at: Follower, call: Call) -> None:
    descriptors = at.descriptors(call)
    number, command, value = number_of(call.arguments[0]), call.arguments[1], call.arguments[-1]
    if command in ("F_DUPFD", "F_DUPFD_CLOEXEC"):
        _duplicate(at, number, call.result, call, closes=command == "F_DUPFD_CLOEXEC")
    elif command == "F_SETFD" and number in descriptors.files:
        descriptors.set_closing(number, "FD_CLOEXEC" in words(value))
    elif command == "F_SETFL" and number in descriptors.files:
        descriptors.files[number].appends = "O_APPEND" in words(value)


def connect(at: Follower, call: Call) -> None:
    """Sockets and pipes: their numbers are no files."""
    pairs = [item for value in call.arguments if isinstance(value, list) for item in value]
    for fd in [call.fd, *pairs]:
        if isinstance(fd, Fd):
            at.descriptors(call).drop(fd.number)


def fork(at: Follower, call: Call) -> None:
    if call.result:
        at.process_of(call.result)


def execve(at: Follower, call: Call) -> None:
    at.descriptors(call).exec()


def chdir(at: Follower, call: Call) -> None:
    place = at.existing(call, call.arguments[0], follows_last=True)
    assert place.object is not None
    at.process(call).cwd.object = place.object


def fchdir(at: Follower, call: Call) -> None:
    at.process(call).cwd.object = at.file(call, call.arguments[0]).object


EFFECTS: Mapping[str, Effect] = {
    "open": open_,
    "creat": creat,
    "openat": openat,
    "openat2": openat2,
    "close": close,
    "close_range": close_range,
    "dup": dup,
    "dup2": dup,
    "dup3": dup,
    "fcntl": fcntl,
    "socket": connect,
    "socketpair": connect,
    "accept": connect,
    "accept4": connect,
    "pipe": connect,
    "pipe2": connect,
    **dict.fromkeys(FORKS, fork),
    "execve": execve,
    "execveat": execve,
    "chdir": chdir,
    "fchdir": fchdir,
}
