"""The names that a save can reach: the checkpoint directory, of which all is known, and the file system around it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from harness.crashstates.operation import ROOT

_MAX_LINKS = 40  # path_resolution(7)


class Sort(StrEnum):
    """What an object is."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    OTHER = "other"  # a device, a pipe, a socket


@dataclass(slots=True)
class Object:
    """Something that can have names.

    Attributes:
        parent, name: where it is, or was last.
        is_ours: made while we recorded (or the checkpoint directory): all of it is known.
        size_bytes: of a file; of one that is not ours it is what was added to it.
        text: where a link leads.
    """

    number: int
    sort: Sort
    parent: int
    name: str
    is_ours: bool
    size_bytes: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a path leads: an entry, and the object that stands there, or None.

    Attributes:
        walked: the entries that led there, itself included.
    """

    directory: int
    name: str
    object: int | None
    walked: tuple[tuple[int, str], ...] = ()


class LostTrack(Exception):
    """A path of a call that went well leads nowhere: the call that made it has not been followed yet."""


@dataclass
class Namespace:
    """Objects by number, entries by directory and name; what is not ours is looked up in the real file system.

    Args:
        root: the real path (no links) of the checkpoint directory, object 0.
    """

    root: str
    objects: dict[int, Object] = field(default_factory=dict)
    entries: dict[tuple[int, str], int | None] = field(default_factory=dict)
    inside: set[int] = field(default_factory=lambda: {ROOT})
    """Objects that are, or have been, in the checkpoint directory or below."""

    def __post_init__(self) -> None:
        self.top = 1
        self._next = 2
        self.objects[self.top] = Object(self.top, Sort.DIRECTORY, self.top, "", is_ours=False)
        above, _, name = self.root.rpartition("/")
        parent = self.top
        for part in above.split("/")[1:]:
            number = self._new(Sort.DIRECTORY, parent, part, is_ours=False)
            self.entries[parent, part] = number
            parent = number
        self.objects[ROOT] = Object(ROOT, Sort.DIRECTORY, parent, name, is_ours=True)
        self.entries[parent, name] = ROOT

    def make(self, sort: Sort, directory: int, name: str, text: str = "") -> int:
        """The number of a new object at an entry."""
        number = self._new(sort, directory, name, is_ours=True, text=text)
        self.put(directory, name, number)
        return number

    def make_nowhere(self) -> int:
        """The number of a new file in a directory that cannot be reached (O_TMPFILE)."""
        directory = self._new(Sort.DIRECTORY, self.top, "(nowhere)", is_ours=True)
        return self.make(Sort.FILE, directory, "#")

    def make_found(self, directory: int, name: str) -> int:
        """The number of a file that is not ours, and has been where it is not any more."""
        number = self._new(Sort.FILE, directory, name, is_ours=False)
        self.entries[directory, name] = number
        return number

    def make_unknown(self, path: str) -> int:
        """The number of a file that is not ours, and cannot be found any more."""
        return self._new(Sort.OTHER, self.top, path.strip("/"), is_ours=False)

    def has_name(self, number: int) -> bool:
        """Whether an object still stands where it was last."""
        thing = self.objects[number]
        return number == self.top or self.entries.get((thing.parent, thing.name)) == number

    def place_of(self, number: int) -> Place:
        """Where an object is, or was last."""
        thing = self.objects[number]
        return Place(thing.parent, thing.name, number)

    def put(self, directory: int, name: str, number: int) -> None:
        """From now on the entry is this object's, and the object, if it is a directory, is there."""
        self.entries[directory, name] = number
        thing = self.objects[number]
        thing.parent, thing.name = directory, name
        if directory in self.inside:
            self.inside.update(self._below(number))

    def remove(self, directory: int, name: str) -> None:
        """From now on there is no such entry."""
        self.entries[directory, name] = None

    def path(self, number: int) -> str:
        """The absolute path of an object, where it is or was last."""
        parts: list[str] = []
        while number != self.top and len(parts) < 1000:
            thing = self.objects[number]
            parts.append(thing.name)
            number = thing.parent
        return "/" + "/".join(reversed(parts))

    def shown(self, directory: int, name: str) -> str:
        """The path of an entry for people: relative to the checkpoint directory if it is below it."""
        path = f"{self.path(directory).rstrip('/')}/{name}"
        return path.removeprefix(self.root + "/")

    def shown_object(self, number: int) -> str:
        if number == ROOT:
            return "."
        return self.shown(self.objects[number].parent, self.objects[number].name)

    def find(self, start: int, path: str, *, follows_last: bool) -> Place:
        """Where ``path`` leads from directory ``start``.

        Args:
            follows_last: whether a link at the path's end is followed.

        Raises:
            LostTrack: it goes through a directory that is not there.
        """
        here = self.top if path.startswith("/") else start
        parts = list(reversed(path.split("/")))
        walked: list[tuple[int, str]] = []
        num_links = 0
        while parts:
            part = parts.pop()
            if part in ("", "."):
                continue
            if part == "..":
                here = self.objects[here].parent
                continue
            is_last = not any(parts)
            number = self._look(here, part, is_directory=not is_last)
            walked.append((here, part))
            thing = None if number is None else self.objects[number]
            if thing and thing.sort is Sort.LINK and (follows_last or not is_last):
                num_links += 1
                if num_links > _MAX_LINKS:
                    raise LostTrack(f"too many links in {path}")
                parts.extend(reversed(thing.text.split("/")))
                here = self.top if thing.text.startswith("/") else here
            elif is_last:
                return Place(here, part, number, tuple(walked))
            elif number is None:
                raise LostTrack(f"{self.shown(here, part)} is not there")
            else:
                here = number
        return replace(self.place_of(here), walked=tuple(walked))

    def _look(self, directory: int, name: str, *, is_directory: bool) -> int | None:
        if (directory, name) in self.entries:
            return self.entries[directory, name]
        if self.objects[directory].is_ours:
            return None
        path = f"{self.path(directory).rstrip('/')}/{name}"
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            if not is_directory:
                return None
            mode = stat.S_IFDIR  # it led somewhere at that time
        text = str(Path(path).readlink()) if stat.S_ISLNK(mode) else ""
        number = self._new(_sort(mode), directory, name, is_ours=False, text=text)
        self.entries[directory, name] = number
        return number

    def _new(self, sort: Sort, parent: int, name: str, *, is_ours: bool, text: str = "") -> int:
        number = self._next
        self._next += 1
        self.objects[number] = Object(number, sort, parent, name, is_ours, text=text)
        return number

    def _below(self, number: int) -> Iterator[int]:
        yield number
        if self.objects[number].sort is Sort.DIRECTORY:
            for (directory, _), child in self.entries.items():
                if directory == number and child is not None:
                    yield from self._below(child)


def _sort(mode: int) -> Sort:
    if stat.S_ISDIR(mode):
        return Sort.DIRECTORY
    if stat.S_ISLNK(mode):
        return Sort.LINK
    return Sort.FILE if stat.S_ISREG(mode) else Sort.OTHER
