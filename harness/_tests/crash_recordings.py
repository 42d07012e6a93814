"""Recordings written by hand, for tests: each line is what a save does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.crashstates.operation import ROOT, Kind, Operation, Recording


class Script:
    """Writes a recording operation by operation; paths are relative to the checkpoint directory."""

    def __init__(self, ranks: int = 1, *, has_sites: bool = True) -> None:
        self._ranks = ranks
        self._has_sites = has_sites
        self._operations: list[Operation] = []
        self._objects: dict[str, int] = {"": ROOT}
        self._num_objects = 1
        self._directories = {ROOT}
        self._steps: list[int] = []
        self._done = [0] * ranks
        self._known = [[0] * ranks for _ in range(ranks)]
        self._sizes: dict[int, int] = {}

    def save(self, step: int, does: Callable[[Script], None]) -> Script:
        """One save on rank 0."""
        self.begin(step)
        does(self)
        return self.ack(step)

    def begin(self, step: int, rank: int = 0) -> Script:
        self._steps += [] if step in self._steps else [step]
        return self._add(rank, Kind.BEGIN, "save", "", step=step)

    def ack(self, step: int, rank: int = 0) -> Script:
        return self._add(rank, Kind.ACK, "save", "", step=step)

    def mkdir(self, path: str, rank: int = 0) -> Script:
        self._directories.add(self._new(path))
        return self._add(rank, Kind.MKDIR, "mkdir", path, **self._entry(path))

    def create(self, path: str, data: bytes | None = None, rank: int = 0) -> Script:
        self._new(path)
        self._add(rank, Kind.CREATE, "openat", path, **self._entry(path))
        return self if data is None else self.write(path, data, rank=rank)

    def symlink(self, path: str, text: str, rank: int = 0) -> Script:
        self._new(path)
        return self._add(rank, Kind.SYMLINK, "symlink", path, text=text, **self._entry(path))

    def write(self, path: str, data: bytes, offset: int | None = None, rank: int = 0, source: str = "") -> Script:
        object_ = self._objects[path]
        start = self._sizes.get(object_, 0) if offset is None else offset
        self._sizes[object_] = start + len(data)
        return self._add(rank, Kind.WRITE, "write", path, object=object_, offset=start, data=data, source=source)

    def truncate(self, path: str, size_bytes: int = 0, rank: int = 0) -> Script:
        self._sizes[self._objects[path]] = size_bytes
        return self._add(rank, Kind.TRUNCATE, "ftruncate", path, object=self._objects[path], size_bytes=size_bytes)

    def fsync(self, path: str = "", rank: int = 0) -> Script:
        return self._add(rank, Kind.SYNC, "fsync", path, object=self._objects[path])

    def sync(self, rank: int = 0) -> Script:
        return self._add(rank, Kind.SYNC_ALL, "sync", "")

    def rename(self, old: str, new: str, rank: int = 0) -> Script:
        to = self._entry_of(new)
        self._add(
            rank,
            Kind.RENAME,
            "rename",
            old,
            **self._entry(old),
            to_directory=to[0],
            to_name=to[1],
            replaced=self._objects.get(new),
        )
        for path in [p for p in self._objects if p == old or p.startswith(f"{old}/")]:
            self._objects[new + path.removeprefix(old)] = self._objects.pop(path)
        return self

    def unlink(self, path: str, rank: int = 0) -> Script:
        self._add(rank, Kind.UNLINK, "unlink", path, **self._entry(path))
        del self._objects[path]
        return self

    def message(self, sender: int, receiver: int) -> Script:
        """What the sender had done is known to the receiver from now on."""
        theirs = [*self._known[sender]]
        theirs[sender] = self._done[sender]
        self._known[receiver] = [max(a, b) for a, b in zip(self._known[receiver], theirs, strict=True)]
        return self

    def barrier(self) -> Script:
        for sender in range(self._ranks):
            self.message(sender, 0)
        for receiver in range(self._ranks):
            self.message(0, receiver)
        return self

    @property
    def recording(self) -> Recording:
        return Recording(
            root="/checkpoints",
            ranks=self._ranks,
            steps=tuple(self._steps),
            operations=tuple(self._operations),
            directories=frozenset(self._directories),
        )

    def _new(self, path: str) -> int:
        self._objects[path] = self._num_objects
        self._num_objects += 1
        return self._objects[path]

    def _entry_of(self, path: str) -> tuple[int, str]:
        parent, _, name = path.rpartition("/")
        return self._objects[parent], name

    def _entry(self, path: str) -> dict[str, Any]:
        directory, name = self._entry_of(path)
        return {"directory": directory, "name": name, "object": self._objects[path]}

    def _add(self, rank: int, kind: Kind, call: str, path: str, **fields: Any) -> Script:
        index = len(self._operations)
        known = [*self._known[rank]]
        known[rank] = self._done[rank]
        self._done[rank] += 1
        self._operations.append(
            Operation(
                index=index,
                rank=rank,
                kind=kind,
                call=call,
                path=path,
                site=f"saver.py:{index}" if self._has_sites else None,
                t_s=float(index),
                known=tuple(known),
                **fields,
            )
        )
        return self
