"""A file tree that operations change, and what of it a reader can see.

Operations are applied leniently: after a crash that lost some of them the others still stand, so each says what an
entry or a file is from then on, and asks nothing of what was before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from harness.crashstates.operation import ROOT, Kind, Operation, Recording


@dataclass(frozen=True, slots=True)
class File:
    """A file's bytes, and when they were last changed (seconds since the epoch).

    Attributes:
        digest: of ``data``, so that trees can be compared without reading it again.
    """

    data: bytes
    t_s: float
    digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", blake2b(self.data, digest_size=16).digest())


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link."""

    text: str


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory; what is in it are entries of their own."""


Node = File | Link | Directory
Visible = dict[str, Node]  # path relative to the checkpoint directory -> what is there; parents before children


class Tree:
    """Entries and objects; starts as an empty checkpoint directory, and every object of the recording without a name.

    So an object that was renamed is what it is even where its making was lost: a directory, a link, an empty file.
    """

    __slots__ = ("entries", "nodes")

    def __init__(self, recording: Recording) -> None:
        self.entries: dict[tuple[int, str], int] = {}
        self.nodes: dict[int, Node] = {ROOT: Directory()}
        for op in recording.operations:
            if op.kind is Kind.CREATE:
                self.nodes[op.object] = File(b"", op.t_s)
            elif op.kind is Kind.SYMLINK:
                self.nodes[op.object] = Link(op.text)
        for directory in recording.directories:
            self.nodes[directory] = Directory()

    def copy(self) -> Tree:
        other = Tree.__new__(Tree)
        other.entries, other.nodes = dict(self.entries), dict(self.nodes)
        return other

    def apply(self, op: Operation) -> None:
        """Change the tree as ``op`` does when nothing is lost; BEGIN, ACK and syncs change nothing."""
        match op.kind:
            case Kind.CREATE | Kind.MKDIR | Kind.SYMLINK | Kind.LINK:
                self.entries[op.directory, op.name] = op.object
            case Kind.RENAME:
                self.vanish(op)
                self.appear(op)
            case Kind.UNLINK | Kind.RMDIR:
                if self.entries.get((op.directory, op.name)) == op.object:
                    del self.entries[op.directory, op.name]
            case Kind.WRITE | Kind.TRUNCATE:
                self.nodes[op.object] = File(changed(self.data(op.object), op), op.t_s)
            case _:
                pass

    def vanish(self, op: Operation) -> None:
        """The first half of a rename: the old name is gone."""
        if self.entries.get((op.directory, op.name)) == op.object:
            del self.entries[op.directory, op.name]

    def appear(self, op: Operation) -> None:
        """The second half of a rename: the new name is there."""
        self.entries[op.to_directory, op.to_name] = op.object

    def data(self, object_: int) -> bytes:
        """The bytes of a file; none of one that was there before the recording began."""
        node = self.nodes.get(object_)
        return node.data if isinstance(node, File) else b""

    def visible(self) -> Visible:
        """What can be reached from the checkpoint directory, parents first, names sorted."""
        return {path: self.nodes[object_] for path, object_ in self.names()}

    def names(self) -> list[tuple[str, int]]:
        """The paths of the same, each with the object that it leads to."""
        names: dict[int, list[tuple[str, int]]] = {}
        for (directory, name), object_ in self.entries.items():
            names.setdefault(directory, []).append((name, object_))
        return list(self._below(ROOT, "", names, frozenset({ROOT})))

    def _below(
        self, directory: int, prefix: str, names: dict[int, list[tuple[str, int]]], above: frozenset[int]
    ) -> Iterator[tuple[str, int]]:
        for name, object_ in sorted(names.get(directory, ())):
            yield prefix + name, object_
            if object_ not in above and isinstance(self.nodes[object_], Directory):
                yield from self._below(object_, f"{prefix}{name}/", names, above | {object_})


def changed(data: bytes, op: Operation) -> bytes:
    """The bytes of a file after a WRITE or a TRUNCATE; a gap is zeros."""
    if op.kind is Kind.TRUNCATE:
        return data[: op.size_bytes].ljust(op.size_bytes, b"\0")
    return data[: op.offset].ljust(op.offset, b"\0") + op.data + data[op.offset + len(op.data) :]


def key(visible: Visible) -> bytes:
    """16 bytes that are equal for equal trees: names, kinds, bytes, and the order of the files' times."""
    times = sorted({node.t_s for node in visible.values() if type(node) is File})
    ranks = {t_s: rank for rank, t_s in enumerate(times)}
    words: list[str] = []
    digests: list[bytes] = []
    for path, node in visible.items():
        if type(node) is File:
            words.append(f"f {path} {ranks[node.t_s]}\0")
            digests.append(node.digest)
        else:
            words.append(f"l {path} {node.text}\0" if type(node) is Link else f"d {path}\0")
    text = "".join(words).encode(errors="surrogateescape")
    return blake2b(b"".join([text, b"\0", *digests]), digest_size=16).digest()
