"""Orders of operations that are wrong whatever the reader does: found in the recording alone.

Each is a warning: whether a crash can make something of it is for the states to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.crashstates.operation import CHANGES_DATA, ROOT, Kind, Operation, Recording
from harness.crashstates.tree import File, Tree

Rule = Literal[
    "fsync-before-flush",
    "rename-without-directory-fsync",
    "replace-across-mounts",
    "marker-before-data",
    "overwrite-in-place",
    "delete-before-durable",
    "never-synced",
]
MEANING: dict[Rule, str] = {
    "fsync-before-flush": "a file is synced while its bytes are still in the program's own buffer",
    "rename-without-directory-fsync": "a rename is not durable until the directory is synced",
    "replace-across-mounts": "a file is copied to its final name from elsewhere: not atomic, a crash leaves half of it",
    "marker-before-data": "what says that the save is complete comes before the data is durable",
    "overwrite-in-place": "the bytes of an acknowledged save are overwritten: a crash leaves a mixture",
    "delete-before-durable": "an acknowledged save is deleted before the new one is durable",
    "never-synced": "a file is not durable when the save returns: it was never synced",
}
_MARKER = re.compile(
    r"complete|done|latest|last|success|commit|finish|metadata|manifest|tracker|current|pointer", re.IGNORECASE
)
_LOCK = re.compile(r"\block\b|lock$|lck$|pid$", re.IGNORECASE)  # says nothing after a crash: need not be durable
_MARKER_BYTES = 64 << 10  # a longer file is data, whatever its name


@dataclass(frozen=True, slots=True)
class StaticFinding:
    """``rule`` was broken by ``operations``, the first of which is where to look; ``words`` name files."""

    rule: Rule
    words: str
    operations: tuple[Operation, ...]


def static_findings(recording: Recording) -> list[StaticFinding]:
    """What is wrong with the order of the operations, each thing once: the first save in which it is seen."""
    found: dict[tuple[Rule, str | None, str], StaticFinding] = {}
    for step in recording.steps:
        save = _Save(recording, step)
        for rule in _RULES:
            for finding in rule(save):
                first = finding.operations[0]
                # The same line in a later save is the same thing; without lines the file's name without digits is.
                place = first.site or re.sub(r"\d+", "N", first.path)
                found.setdefault((finding.rule, place, first.call), finding)
    return list(found.values())


class _Save:
    """One save's operations: from the first rank's BEGIN to the last rank's ACK."""

    def __init__(self, recording: Recording, step: int) -> None:
        ops = recording.operations
        ends = [op.index for op in ops if op.step == step and op.kind in (Kind.BEGIN, Kind.ACK)]
        self.operations = [op for op in ops if min(ends) < op.index < max(ends)]
        self.end = ops[max(ends)]
        self.before = Tree(recording)
        for op in ops[: min(ends)]:
            self.before.apply(op)
        self.directories = recording.directories
        self._old = {o for (d, _), o in self.before.entries.items() if self._is_below_root(d)}
        self.after = self.before.copy()
        for op in self.operations:
            self.after.apply(op)

    @property
    def writes(self) -> list[Operation]:
        """What was written to files of the checkpoint directory, but for locks."""
        return [
            op for op in self.operations if op.kind is Kind.WRITE and self.is_inside(op) and not _LOCK.search(_name(op))
        ]

    def syncs_after(self, op: Operation, object_: int) -> Iterator[Operation]:
        """The syncs of ``object_`` between ``op`` and the acknowledgement."""
        for sync in self.operations:
            is_of_it = sync.kind is Kind.SYNC_ALL or (sync.kind is Kind.SYNC and sync.object == object_)
            if sync.index > op.index and is_of_it:
                yield sync

    def is_inside(self, op: Operation) -> bool:
        return not op.path.startswith("/")

    def is_old(self, object_: int) -> bool:
        """Whether the checkpoint directory held this file or directory when the save began."""
        return object_ in self._old

    def pending_at(self, op: Operation, writes: Sequence[Operation]) -> Operation | None:
        """The first of ``writes`` that was done and not durable when ``op`` was done."""
        for write in writes:
            sync = next(self.syncs_after(write, write.object), None)
            if write.index < op.index and (sync is None or sync.index > op.index):
                return write
        return None

    def _is_below_root(self, directory: int) -> bool:
        above = {o: d for (d, _), o in self.before.entries.items()}
        seen: set[int] = set()
        while directory != ROOT and directory in above and directory not in seen:
            seen.add(directory)
            directory = above[directory]
        return directory == ROOT


def _fsync_before_flush(save: _Save) -> Iterator[StaticFinding]:
    for sync in save.operations:
        if sync.kind is not Kind.SYNC:
            continue
        later = [op for op in save.operations if op.object == sync.object and op.kind in CHANGES_DATA]
        after = [op for op in later if op.index > sync.index]
        if after and next(save.syncs_after(after[-1], sync.object), None) is None:
            num_bytes = sum(len(op.data) for op in after)
            words = f"{sync.path} is synced, then {num_bytes} bytes are written to it and never synced"
            yield StaticFinding("fsync-before-flush", words, (sync, after[0]))


def _rename_without_directory_fsync(save: _Save) -> Iterator[StaticFinding]:
    for op in save.operations:
        if op.kind is Kind.RENAME and save.is_inside(op) and next(save.syncs_after(op, op.to_directory), None) is None:
            words = (
                f"{op.path} is renamed to {op.to_name}, and the directory it is in is not synced before save returns"
            )
            yield StaticFinding("rename-without-directory-fsync", words, (op, save.end))


def _replace_across_mounts(save: _Save) -> Iterator[StaticFinding]:
    seen = set[int]()
    for op in save.writes:
        if op.source.startswith("/") and op.object not in seen and not _is_renamed_later(save, op):
            seen.add(op.object)
            yield StaticFinding("replace-across-mounts", f"{op.path} is a copy of {op.source}, made in place", (op,))


def _marker_before_data(save: _Save) -> Iterator[StaticFinding]:
    markers = _markers(save)
    small = {marker.object for marker in markers}
    data = [op for op in save.writes if op.object not in small]
    for marker in markers:
        if later := [op for op in data if op.index > marker.index]:
            words = f"{_name(marker)} is written before {later[-1].path}"
            yield StaticFinding("marker-before-data", words, (marker, later[-1]))
        elif pending := save.pending_at(marker, data):
            words = f"{_name(marker)} is written while {pending.path} is not durable yet"
            yield StaticFinding("marker-before-data", words, (marker, pending))


def _markers(save: _Save) -> list[Operation]:
    """What gives a small file or a link a name that says: it is complete, this is the newest."""
    found = []
    for op in save.operations:
        if op.kind not in (Kind.CREATE, Kind.SYMLINK, Kind.RENAME, Kind.WRITE) or not save.is_inside(op):
            continue
        node = save.after.nodes.get(op.object)
        is_small = not isinstance(node, File) or len(node.data) <= _MARKER_BYTES
        is_final = op.kind is Kind.RENAME or not _is_renamed_later(save, op)
        is_entry = op.kind is not Kind.WRITE or save.is_old(op.object)
        if is_small and is_final and is_entry and op.object not in save.directories and _MARKER.search(_name(op)):
            found.append(op)
    return found


def _is_renamed_later(save: _Save, op: Operation) -> bool:
    return any(o.kind is Kind.RENAME and o.object == op.object and o.index > op.index for o in save.operations)


def _overwrite_in_place(save: _Save) -> Iterator[StaticFinding]:
    seen = set[int]()
    for op in save.operations:
        if op.kind not in CHANGES_DATA or not save.is_old(op.object) or op.object in seen:
            continue
        start = op.size_bytes if op.kind is Kind.TRUNCATE else op.offset
        if start < len(save.before.data(op.object)):
            seen.add(op.object)
            words = f"{op.path} held bytes of an acknowledged save, and they are overwritten"
            yield StaticFinding("overwrite-in-place", words, (op,))


def _delete_before_durable(save: _Save) -> Iterator[StaticFinding]:
    new = save.writes
    for op in save.operations:
        if op.kind is not Kind.UNLINK or not save.is_old(op.object) or not save.before.data(op.object):
            continue
        if not new or new[0].index > op.index:
            yield StaticFinding("delete-before-durable", f"{op.path} is deleted before the new save is begun", (op,))
        elif (pending := save.pending_at(op, new)) is not None:
            words = f"{op.path} is deleted while {pending.path} of the new save is not durable"
            yield StaticFinding("delete-before-durable", words, (op, pending))


def _never_synced(save: _Save) -> Iterator[StaticFinding]:
    last = {op.object: op for op in save.writes}
    synced = {op.object for op in save.operations if op.kind is Kind.SYNC}
    for object_, op in last.items():
        if object_ not in synced and next(save.syncs_after(op, object_), None) is None:
            yield StaticFinding("never-synced", f"{op.path} is not synced before save returns", (op, save.end))


def _name(op: Operation) -> str:
    return op.to_name if op.kind is Kind.RENAME else op.path.rsplit("/", 1)[-1]


_RULES: tuple[Callable[[_Save], Iterator[StaticFinding]], ...] = (
    _fsync_before_flush,
    _rename_without_directory_fsync,
    _replace_across_mounts,
    _marker_before_data,
    _overwrite_in_place,
    _delete_before_durable,
    _never_synced,
)
