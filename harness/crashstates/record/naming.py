"""What calls do to names: rename, link, unlink, make directories."""

from __future__ import annotations

from collections.abc import Mapping

from harness.crashstates.operation import ROOT, Kind
from harness.crashstates.record.follow import CannotFollow, Effect, Follower, words
from harness.crashstates.record.namespace import LostTrack, Place, Sort
from harness.crashstates.record.strace import Call, Value


def _rename(at: Follower, call: Call, old: Place, new: Place, flags: Value = None) -> None:
    space = at.namespace
    if "RENAME_EXCHANGE" in words(flags):
        raise CannotFollow("two names were exchanged (RENAME_EXCHANGE), which the record cannot follow")
    assert old.object is not None
    if old.object == new.object:
        return  # two names of one file: rename(2) does nothing
    shown = space.shown(old.directory, old.name)
    _brought_in(at, call, old, new, "moved")
    space.remove(old.directory, old.name)
    space.put(new.directory, new.name, old.object)
    at.emit(
        call,
        Kind.RENAME,
        shown,
        directory=old.directory,
        name=old.name,
        to_directory=new.directory,
        to_name=new.name,
        object=old.object,
        replaced=new.object,
    )


def _brought_in(at: Follower, call: Call, old: Place, new: Place, how: str) -> None:
    """What was there before the save gets a name in the checkpoint directory: none of its bytes are known."""
    space = at.namespace
    thing = space.objects[old.object or ROOT]
    if thing.is_ours or new.directory not in space.inside:
        return
    shown = space.shown(old.directory, old.name)
    at.unsure[thing.number] = f"{shown} was there before, and was {how} into the checkpoint directory"
    if thing.sort is not Sort.DIRECTORY:
        at.emit(call, Kind.CREATE, shown, directory=old.directory, name=old.name, object=thing.number)


def rename(at: Follower, call: Call) -> None:
    old, new = call.arguments
    _rename(at, call, at.existing(call, old), at.place(call, new))


def renameat(at: Follower, call: Call) -> None:
    old_directory, old, new_directory, new, *flags = call.arguments
    _rename(at, call, at.existing(call, old, old_directory), at.place(call, new, new_directory), *flags)


def _link(at: Follower, call: Call, old: Place, new: Place) -> None:
    assert old.object is not None
    _brought_in(at, call, old, new, "linked")
    _appears(at, call, Kind.LINK, new, old.object)


def link(at: Follower, call: Call) -> None:
    old, new = call.arguments
    _link(at, call, at.existing(call, old), at.place(call, new))


def linkat(at: Follower, call: Call) -> None:
    old_directory, old, new_directory, new, flags = call.arguments
    source = at.existing(call, old, old_directory, follows_last="AT_SYMLINK_FOLLOW" in words(flags))
    _link(at, call, source, at.place(call, new, new_directory))


def _appears(at: Follower, call: Call, kind: Kind, place: Place, number: int, text: str = "") -> None:
    at.namespace.put(place.directory, place.name, number)
    shown = at.namespace.shown(place.directory, place.name)
    at.emit(call, kind, shown, directory=place.directory, name=place.name, object=number, text=text)


def _symlink(at: Follower, call: Call, target: Value, place: Place) -> None:
    if not isinstance(target, bytes):
        raise CannotFollow("a link's target could not be read")
    text = target.decode(errors="surrogateescape")
    number = at.namespace.make(Sort.LINK, place.directory, place.name, text)
    _appears(at, call, Kind.SYMLINK, place, number, text)


def symlink(at: Follower, call: Call) -> None:
    target, path = call.arguments
    _symlink(at, call, target, at.place(call, path))


def symlinkat(at: Follower, call: Call) -> None:
    target, directory, path = call.arguments
    _symlink(at, call, target, at.place(call, path, directory))


def _mkdir(at: Follower, call: Call, place: Place) -> None:
    _appears(at, call, Kind.MKDIR, place, at.namespace.make(Sort.DIRECTORY, place.directory, place.name))


def mkdir(at: Follower, call: Call) -> None:
    _mkdir(at, call, at.place(call, call.arguments[0]))


def mkdirat(at: Follower, call: Call) -> None:
    _mkdir(at, call, at.place(call, call.arguments[1], call.arguments[0]))


def _remove(at: Follower, call: Call, kind: Kind, place: Place) -> None:
    space = at.namespace
    if place.object is None:
        if space.objects[place.directory].is_ours:
            raise LostTrack(f"{space.shown(place.directory, place.name)} is not there")
        return  # one of the system's, gone by now
    space.remove(place.directory, place.name)
    shown = space.shown(place.directory, place.name)
    at.emit(call, kind, shown, directory=place.directory, name=place.name, object=place.object)


def unlink(at: Follower, call: Call) -> None:
    _remove(at, call, Kind.UNLINK, at.place(call, call.arguments[0]))


def unlinkat(at: Follower, call: Call) -> None:
    directory, path, flags = call.arguments
    kind = Kind.RMDIR if "AT_REMOVEDIR" in words(flags) else Kind.UNLINK
    _remove(at, call, kind, at.place(call, path, directory))


def rmdir(at: Follower, call: Call) -> None:
    _remove(at, call, Kind.RMDIR, at.place(call, call.arguments[0]))


def _look(at: Follower, call: Call, path: Value, directory: Value = None) -> None:
    """Whoever finds a name learns of those who made it: some ranks wait for one another by that."""
    if isinstance(path, bytes) and path:
        place = at.place(call, path, directory)
        if place.object is None and at.namespace.objects[place.directory].is_ours:
            raise LostTrack(f"{at.namespace.shown(place.directory, place.name)} is not there")  # its making may overlap


def look(at: Follower, call: Call) -> None:
    _look(at, call, call.arguments[0])


def lookat(at: Follower, call: Call) -> None:
    _look(at, call, call.arguments[1], call.arguments[0])


EFFECTS: Mapping[str, Effect] = {
    **dict.fromkeys(("stat", "lstat", "access"), look),
    **dict.fromkeys(("newfstatat", "statx", "faccessat", "faccessat2"), lookat),
    "rename": rename,
    "renameat": renameat,
    "renameat2": renameat,
    "link": link,
    "linkat": linkat,
    "symlink": symlink,
    "symlinkat": symlinkat,
    "mkdir": mkdir,
    "mkdirat": mkdirat,
    "unlink": unlink,
    "unlinkat": unlinkat,
    "rmdir": rmdir,
}
