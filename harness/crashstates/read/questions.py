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

from harness.crashstates.read.disk import modified_s
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


class View:
    """A state that can be asked.

    Args:
        root: the real, absolute path of the checkpoint directory.
    """

    __slots__ = ("_children", "_links", "_outside", "_root", "_times", "visible")

    def __init__(self, root: str, visible: Visible, outside: Outside) -> None:
        self.visible = visible
        self._root = root
        self._outside = outside
        self._links = tuple([f"{path}/" for path, node in visible.items() if type(node) is Link])
        self._children: dict[str, frozenset[tuple[str, type[Node]]]] | None = None
        self._times: dict[str, float] | None = None

    def at(self, path: str, *, follow: bool) -> tuple[str, Node | None]:
        """Where ``path`` leads, as a path of the state, and what is there.

        Args:
            follow: whether to follow a link that is the last name.

        Returns:
            Without anything there, the first is the name of the error, or the absolute path of what is outside.
        """
        if not path:
            return "", _DIRECTORY
        if not f"{path}/".startswith(self._links):
            node = self.visible.get(path)
            if node is not None:
                return path, node
            parent, _, name = path.rpartition("/")
            if name not in ("", ".", "..") and (name == path or type(self.visible.get(parent)) is Directory):
                return "ENOENT", None
        where = resolve(self._root, f"{self._root}/{path}", self.visible, self._outside, follow=follow)
        if where == self._root:
            return "", _DIRECTORY
        if not where.startswith(f"{self._root}/"):
            return where, None
        where = where[len(self._root) + 1 :]
        node = self.visible.get(where)
        if node is None:
            return "ENOENT", None
        if type(node) is File and path.endswith("/"):
            return "ENOTDIR", None
        return where, node

    def children(self, directory: str) -> frozenset[tuple[str, type[Node]]]:
        """Names and kinds in a directory, which is a path of the state."""
        if self._children is None:
            listed: dict[str, list[tuple[str, type[Node]]]] = {}
            for path, node in self.visible.items():
                parent, _, name = path.rpartition("/")
                listed.setdefault(parent, []).append((name, type(node)))
            self._children = {parent: frozenset(names) for parent, names in listed.items()}
        return self._children.get(directory, frozenset())

    def time_s(self, path: str) -> float:
        """When what ``path`` leads to was changed; -1 if it leads nowhere in this state."""
        where, node = self.at(path, follow=True)
        if type(node) is File:
            return node.t_s
        if node is None:
            return -1
        if self._times is None:
            self._times = modified_s(self.visible)
        return self._times[where]


@dataclass(frozen=True, slots=True)
class Question(ABC):
    """One that was asked by a system call."""

    path: str

    @abstractmethod
    def answer(self, view: View) -> Answer: ...


class Name(Question):
    """lstat, readlink: what this name is."""

    __slots__ = ()
    follow = False

    def answer(self, view: View) -> Answer:
        where, node = view.at(self.path, follow=self.follow)
        return len(node.data) if type(node) is File else node if type(node) is Link else where


class Target(Name):
    """stat, access: what is behind this name. Of a directory also which, since its descriptor may be used later."""

    __slots__ = ()
    follow = True


class Content(Question):
    """open: what is behind this name, and what is in it."""

    __slots__ = ()

    def answer(self, view: View) -> Answer:
        where, node = view.at(self.path, follow=True)
        return node.digest if type(node) is File else where


class Names(Question):
    """getdents: which names, of which kinds, are in this directory."""

    __slots__ = ()

    def answer(self, view: View) -> Answer:
        where, node = view.at(self.path, follow=False)
        return view.children(where) if type(node) is Directory else where


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
        times = [view.time_s(path) for path in self.path.split("\0")]
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
