"""Trees of names, each made once: thousands of crashes leave few different ones; the rest is what is in the files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from harness.crashstates.operation import Recording
from harness.crashstates.tree import File, Link, Node, Tree, Visible

How = Literal["whole", "appeared", "vanished"]  # of a rename the second half alone, or the first
Change = tuple[int, How]  # index of an operation on entries, and how much of it came about


class Names:
    """Which paths lead to which objects, parents first; equal ones of one recording are the same object.

    Attributes:
        objects: what the paths lead to, in their order.
    """

    __slots__ = ("_paths", "objects")

    def __init__(self, names: Iterable[tuple[str, int]]) -> None:
        self._paths, self.objects = tuple(zip(*names, strict=True)) or ((), ())

    def content(self, nodes: Sequence[Node]) -> object:
        """Equal, for all names of one recording, where ``key(visible(nodes))`` is; made in a fraction of the time."""
        times = [node.t_s for node in nodes if type(node) is File]
        ranks = {t_s: rank for rank, t_s in enumerate(sorted(set(times)))}
        of_nodes = [node.digest if type(node) is File else node.text if type(node) is Link else None for node in nodes]
        return self._paths, tuple(of_nodes), tuple(map(ranks.__getitem__, times))

    def visible(self, nodes: Sequence[Node]) -> Visible:
        """The state in which the objects are ``nodes``."""
        return dict(zip(self._paths, nodes, strict=True))


class NameTrees:
    """The trees of names of one recording."""

    def __init__(self, recording: Recording) -> None:
        self._blank = Tree(recording)
        self._operations = recording.operations
        self._by_changes: dict[tuple[Change, ...], Names] = {}
        self._by_names: dict[tuple[tuple[str, int], ...], Names] = {}

    def after(self, changes: tuple[Change, ...]) -> Names:
        """The names once these, in the recorded order, were made."""
        found = self._by_changes.get(changes)
        if found is None:
            names = tuple(self._made(changes).names())
            found = self._by_changes[changes] = self._by_names.setdefault(names, Names(names))
        return found

    def _made(self, changes: Iterable[Change]) -> Tree:
        tree = self._blank.copy()
        for index, how in changes:
            op = self._operations[index]
            match how:
                case "whole":
                    tree.apply(op)
                case "appeared":
                    tree.appear(op)
                case "vanished":
                    tree.vanish(op)
        return tree
