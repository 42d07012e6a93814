"""What a reader can ask of a state, and the answers: two states that answer alike are the same to it.

Paths are relative to the checkpoint directory, as the reader gave them: links and dots in them are followed in the
state, as the kernel would. An answer is anything hashable, and only ever compared. Times count only as an order among
the files that were asked about.
"""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from dataclasses import dataclass

from harness.crashstates.tree import Directory, File, Link, Node, Visible, key

MAX_LINKS = 40  # the kernel's
Answer = object
_DIRECTORY, _FILE = Directory(), File(b"", 0.0)


class Outside:
    """What there is outside the checkpoint directory; it is taken to stay as it is."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node | None] = {}

    def at(self, path: str) -> Node | None:
        """What is there itself; of a file not what is in it."""
        if path not in self._nodes:
            self._nodes[path] = self._look(path)
        return self._nodes[path]

    @staticmethod
    def _look(path: str) -> Node | None:
        try:
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                return Link(os.readlink(path))  # noqa: PTH115  Path.readlink does not give the text as it stands
        except OSError:
            return None
        return _DIRECTORY if stat.S_ISDIR(mode) else _FILE


class Shape:
    """Names, kinds and links of a state: they decide where paths lead. States that differ in files alone share one.

    Args:
        root: the real, absolute path of the checkpoint directory.
    """

    def __init__(self, root: str, visible: Visible, outside: Outside) -> None:
        self._root = root
        self._visible = visible
        self._outside = outside
        self._links = tuple([f"{path}/" for path, node in visible.items() if type(node) is Link])
        self._where: tuple[dict[str, tuple[str, bool]], ...] = ({}, {})  # links that are the last name: taken, followed
        self._datings: dict[str, list[tuple[str, ...] | None]] = {}
        listed: dict[str, list[tuple[str, type[Node]]]] = {}
        for path, node in visible.items():
            parent, _, name = path.rpartition("/")
            listed.setdefault(parent, []).append((name, type(node)))
        self._children = {parent: frozenset(names) for parent, names in listed.items()}

    def where(self, path: str, *, follow: bool) -> tuple[str, bool]:
        """Where ``path`` leads, as ``View.at`` has it, and whether there is anything."""
        known = self._where[follow]
        found = known.get(path)
        if found is None:
            found = known[path] = self._resolved(path, follow=follow)
        return found

    def children(self, directory: str) -> frozenset[tuple[str, type[Node]]]:
        """Names and kinds in a directory."""
        return self._children.get(directory, frozenset())

    def datings(self, paths: str) -> list[tuple[str, ...] | None]:
        """For each of several paths, joined by NUL, the files of which the newest says when it was changed.

        None for one that leads nowhere. A directory, or a link, is as old as ``modified_s`` has it.
        """
        found = self._datings.get(paths)
        if found is None:
            found = self._datings[paths] = [self._dating(path) for path in paths.split("\0")]
        return found

    def _dating(self, path: str) -> tuple[str, ...] | None:
        where, is_there = self.where(path, follow=True)
        if not is_there:
            return None
        nodes = self._visible
        if where and type(nodes[where]) is File:
            return (where,)
        below = [other for other in nodes if f"{other}/".startswith(f"{where}/" if where else "")]
        is_new = any(type(nodes[other]) is not File and not self.children(other) for other in below)
        return tuple(other for other in (nodes if is_new else below) if type(nodes[other]) is File)

    def _resolved(self, path: str, *, follow: bool) -> tuple[str, bool]:
        visible = self._visible
        if not path:
            return "", True
        if not f"{path}/".startswith(self._links):
            if path in visible:
                return path, True
            parent, _, name = path.rpartition("/")
            if name not in ("", ".", "..") and (name == path or type(visible.get(parent)) is Directory):
                return "ENOENT", False
        where = resolve(self._root, f"{self._root}/{path}", visible, self._outside, follow=follow)
        if where == self._root:
            return "", True
        if not where.startswith(f"{self._root}/"):
            return where, False
        where = where[len(self._root) + 1 :]
        if where not in visible:
            return "ENOENT", False
        return ("ENOTDIR", False) if type(visible[where]) is File and path.endswith("/") else (where, True)


class View:
    """A state that can be asked; ``Views`` makes it."""

    __slots__ = ("shape", "visible")

    def __init__(self, shape: Shape, visible: Visible) -> None:
        self.shape = shape
        self.visible = visible

    def at(self, path: str, *, follow: bool) -> tuple[str, Node | None]:
        """Where ``path`` leads, as a path of the state, and what is there.

        Args:
            follow: whether to follow a link that is the last name.

        Returns:
            Without anything there, the first is the name of the error, or the absolute path of what is outside.
        """
        where, is_there = self.shape.where(path, follow=follow)
        if not is_there:
            return where, None
        return where, self.visible[where] if where else _DIRECTORY

    def time_s(self, files: tuple[str, ...] | None) -> float:
        """When the newest of these was changed, as ``Shape.datings`` has them; 0 if there are none, -1 for None."""
        if files is None:
            return -1
        nodes = [self.visible[file] for file in files]
        return max([node.t_s for node in nodes if type(node) is File], default=0.0)


class Views:
    """The states of one reader, as they can be asked; each shape is made once.

    Args:
        root: the real, absolute path of the checkpoint directory.
    """

    def __init__(self, root: str, outside: Outside) -> None:
        self._root = root
        self._outside = outside
        self._shapes: dict[object, Shape] = {}

    def of(self, visible: Visible) -> View:
        same = tuple(visible), tuple([None if type(node) is File else node for node in visible.values()])
        shape = self._shapes.get(same)
        if shape is None:
            shape = self._shapes[same] = Shape(self._root, visible, self._outside)
        return View(shape, visible)


@dataclass(frozen=True, slots=True)
class Question(ABC):
    """One that was asked by a system call."""

    path: str

    @abstractmethod
    def answer(self, view: View) -> Answer: ...

    def is_of_shape(self, view: View) -> bool:
        """Whether all states of the same shape answer alike."""
        return False

    def file(self, view: View) -> str | None:
        """The path of the file that alone decides how states of the same shape answer: by ``of_file``."""
        return None

    def of_file(self, file: File) -> Answer:
        raise NotImplementedError


class Entry(Question):
    """readlink, unlink, mkdir: what kind of thing this name is."""

    __slots__ = ()
    follow = False

    def answer(self, view: View) -> Answer:
        where, node = view.at(self.path, follow=self.follow)
        return node if type(node) is Link else (where, type(node))

    def is_of_shape(self, view: View) -> bool:
        return True


class Opened(Entry):
    """open, access: what kind of thing is behind this name; and which, since its descriptor may be used later."""

    __slots__ = ()
    follow = True


class Name(Question):
    """lstat: what this name is; of a file its size, of a directory its links: one for each directory in it."""

    __slots__ = ()
    follow = False

    def answer(self, view: View) -> Answer:
        where, node = view.at(self.path, follow=self.follow)
        if type(node) is Directory:
            return where, sum(kind is Directory for _, kind in view.shape.children(where))
        return self.of_file(node) if type(node) is File else node if type(node) is Link else where

    def is_of_shape(self, view: View) -> bool:
        return self.file(view) is None

    def file(self, view: View) -> str | None:
        where, node = view.at(self.path, follow=self.follow)
        return where if type(node) is File else None

    def of_file(self, file: File) -> Answer:
        return len(file.data)


class Target(Name):
    """stat: the same of what is behind this name."""

    __slots__ = ()
    follow = True


class Content(Question):
    """read, mmap: what is behind this name, and what is in it."""

    __slots__ = ()

    def answer(self, view: View) -> Answer:
        where, node = view.at(self.path, follow=True)
        return self.of_file(node) if type(node) is File else where

    def is_of_shape(self, view: View) -> bool:
        return self.file(view) is None

    def file(self, view: View) -> str | None:
        where, node = view.at(self.path, follow=True)
        return where if type(node) is File else None

    def of_file(self, file: File) -> Answer:
        return file.digest


class Names(Question):
    """getdents: which names, of which kinds, are in this directory."""

    __slots__ = ()

    def answer(self, view: View) -> Answer:
        where, node = view.at(self.path, follow=False)
        return view.shape.children(where) if type(node) is Directory else where

    def is_of_shape(self, view: View) -> bool:
        return True


class Below(Question):
    """rename: this and all that is in it, however deep."""

    __slots__ = ()

    def answer(self, view: View) -> Answer:
        where, node = view.at(self.path, follow=False)
        if type(node) is not Directory:
            return (where, node.digest) if type(node) is File else (where, node)
        prefix = f"{where}/" if where else ""
        return key({path: node for path, node in view.visible.items() if path.startswith(prefix)})


class Order(Question):
    """The order of the times of several paths, joined by NUL."""

    __slots__ = ()

    def answer(self, view: View) -> Answer:
        times = [view.time_s(files) for files in view.shape.datings(self.path)]
        ranks = {time_s: rank for rank, time_s in enumerate(sorted(set(times)))}
        return tuple(map(ranks.__getitem__, times))


class Everything(Question):
    """Whatever there is."""

    __slots__ = ()

    def answer(self, view: View) -> Answer:
        return key(view.visible)


def resolve(root: str, path: str, visible: Visible, outside: Outside, *, follow: bool) -> str:
    """Where an absolute ``path`` leads, links followed, once ``visible`` is at ``root``.

    Returns:
        An absolute path, of which the last name need not be there; or ENOENT, ENOTDIR or ELOOP.
    """
    here, names, num_links = "", path.split("/")[::-1], 0
    while names:
        name = names.pop()
        if name in ("", "."):
            continue
        if name == "..":
            here = here.rpartition("/")[0]
            continue
        there = f"{here}/{name}"
        if there == root:
            node: Node | None = _DIRECTORY
        elif there.startswith(f"{root}/"):
            node = visible.get(there[len(root) + 1 :])
        else:
            node = outside.at(there)
        if isinstance(node, Link) and (follow or names):
            num_links += 1
            if num_links > MAX_LINKS:
                return "ELOOP"
            if node.text.startswith("/"):
                here = ""
            names += node.text.split("/")[::-1]
        elif any(names) and not isinstance(node, Directory):
            return "ENOENT" if node is None else "ENOTDIR"
        else:
            here = there
    return here or "/"
