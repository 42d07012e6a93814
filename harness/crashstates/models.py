"""Which losses a kind of crash allows, from the weakest assumption about it to the strongest.

kill          the processes die, the machine lives: all that they had asked of the kernel stands; a write that was
              going on may be cut
ext4-ordered  power loss on ext4 as it is mounted by default: names change in the order of the calls, any fsync makes
              all earlier changes of names durable, a file's length never runs ahead of its data, and replacing a file
              by a rename waits for the new one's data
posix-min     power loss where only what POSIX promises holds: fsync of a file keeps its bytes, fsync of a directory the
              names in it, and all else may be lost or kept, in any order; a rename is one change
alice         as posix-min, but a rename may be done by half and an unsynced page may hold anything (Pillai et al.,
              "All File Systems Are Not Created Equal", OSDI 2014)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Literal, get_args

from harness.crashstates.cuts import Cut, Order
from harness.crashstates.names import Change, Names, NameTrees
from harness.crashstates.operation import CHANGES_DATA, CHANGES_ENTRIES, SYNCS, Kind, Operation, Recording
from harness.crashstates.tree import File, Node, Tree, Visible, changed
from harness.crashstates.units import Fate, Unit, Wear, entry_unit, file_unit

ModelName = Literal["kill", "ext4-ordered", "posix-min", "alice"]
MODEL_NAMES: tuple[ModelName, ...] = get_args(ModelName)  # the weakest first: each allows what those before it do
_WEAR: dict[ModelName, Wear] = {"kill": "kill", "ext4-ordered": "ordered", "posix-min": "any", "alice": "garbage"}


class Situation:
    """One cut under one model: what may be lost there.

    Attributes:
        units: independent of each other but for ``allows``.
    """

    def __init__(
        self,
        model: ModelName,
        cut: Cut,
        trees: NameTrees,
        entries: Sequence[Operation],
        nodes: dict[int, Node],
        units: tuple[Unit, ...],
    ) -> None:
        self.model = model
        self.cut = cut
        self.units = units
        self._trees = trees
        self._entries = entries  # all changes of entries, in the recorded order
        self._nodes = nodes  # what each object is, but for what the units say of it
        self._optional = frozenset(op.index for unit in units for op in unit.operations)
        self._of_names = [i for i, unit in enumerate(units) if unit.fates[0].file is None]
        self._of_files = [i for i, unit in enumerate(units) if unit.fates[0].file is not None]
        self._names: dict[tuple[int, ...], Names] = {}

    @property
    def num_assignments(self) -> int:
        return math.prod(len(unit.fates) for unit in self.units)

    def fates(self, chosen: Sequence[int]) -> list[Fate]:
        return [unit.fates[i] for unit, i in zip(self.units, chosen, strict=True)]

    def allows(self, chosen: Sequence[int]) -> bool:
        """Whether these fates go together."""
        if self.model != "ext4-ordered":
            return True
        fates = self.fates(chosen)
        kept = frozenset().union(*(fate.kept for fate in fates))
        replacing = {op.object for op in self._entries if op.replaced is not None and op.index in kept}
        return all(fate.word == "kept" for fate in fates if fate.file is not None and fate.file[0] in replacing)

    def names(self, chosen: Sequence[int]) -> Names:
        """The names after the crash; ``chosen`` is the number of each unit's fate."""
        of_names = tuple([chosen[i] for i in self._of_names])
        found = self._names.get(of_names)
        if found is None:
            found = self._names[of_names] = self._trees.after(tuple(self._changes(self.fates(chosen))))
        return found

    def parts(self, chosen: Sequence[int]) -> tuple[Names, list[Node]]:
        """These names, and what their objects are, in their order: of equal states mostly the very same."""
        names = self.names(chosen)
        nodes = self._nodes.copy()
        for i in self._of_files:
            if (file := self.units[i].fates[chosen[i]].file) is not None:
                nodes[file[0]] = file[1]
        return names, [nodes[object_] for object_ in names.objects]

    def visible(self, chosen: Sequence[int]) -> Visible:
        """The file tree after the crash."""
        names, nodes = self.parts(chosen)
        return names.visible(nodes)

    def _changes(self, fates: Sequence[Fate]) -> Iterator[Change]:
        kept = frozenset().union(*(fate.kept for fate in fates))
        appeared = frozenset().union(*(fate.appeared for fate in fates))
        vanished = frozenset().union(*(fate.vanished for fate in fates))
        for op in self._entries:
            if op.index in kept or op.index not in self._optional:
                yield op.index, "whole"
            elif op.index in appeared:
                yield op.index, "appeared"
            elif op.index in vanished:
                yield op.index, "vanished"


class Models:
    """The situations of one recording."""

    def __init__(self, recording: Recording) -> None:
        self.order = Order(recording)
        self._trees = NameTrees(recording)
        self._blank = Tree(recording).nodes
        self._operations = recording.operations
        self._syncs = [op for op in recording.operations if op.kind in SYNCS]
        # What a file is found as depends on few things: how much of it was synced, how much was written.
        self._file_unit = functools.cache(self._make_file_unit)
        self._file = functools.cache(self._make_file)
        self._entry_syncs = functools.cache(self._make_entry_syncs)
        self._data_syncs = {
            op.index: [sync for sync in self._syncs if self._forces_data(sync, op)]
            for op in recording.operations
            if op.kind in CHANGES_DATA
        }

    def at(self, model: ModelName, cut: Cut) -> Situation:
        """What may be lost if the crash comes at ``cut``."""
        ops = self.order.operations(cut)
        entries = [op for op in ops if op.kind in CHANGES_ENTRIES]
        changes = _by_object(ops)
        if model == "kill":
            nodes = self._blank | {object_: self._file(object_, _indices(of_it)) for object_, of_it in changes.items()}
            return Situation("kill", cut, self._trees, entries, nodes, self._interrupted(cut, changes))
        nodes, units = dict(self._blank), list[Unit]()
        for object_, of_it in changes.items():
            num_synced = sum(self._is_forced(cut, self._data_syncs[op.index]) for op in of_it)
            if num_synced:
                nodes[object_] = self._file(object_, _indices(of_it[:num_synced]))
            if of_it[num_synced:]:
                units.append(self._file_unit(_WEAR[model], object_, _indices(of_it), num_synced))
        syncs = self._entry_syncs(forces_all=model == "ext4-ordered")
        lost = [op for op in entries if not self._is_forced(cut, syncs[op.index])]
        if model == "ext4-ordered":
            units += [self._in_order(lost)] if lost else []
        else:
            units += [entry_unit(op, is_split=model == "alice") for op in lost]
        return Situation(model, cut, self._trees, entries, nodes, tuple(units))

    def _interrupted(self, cut: Cut, changes: dict[int, list[Operation]]) -> tuple[Unit, ...]:
        """The writes that a kill may have cut."""
        units = []
        lasts = [self.order.by_rank[rank][position - 1] for rank, position in enumerate(cut) if position]
        for last in lasts:
            # A write may be cut only as long as nobody can know that it was done.
            if last.kind is Kind.WRITE and not any(self.order.is_before(last, other) for other in lasts):
                of_it = changes[last.object]
                if of_it[-1] is last:
                    unit = self._file_unit("kill", last.object, _indices(of_it), len(of_it) - 1)
                    units += [unit] if len(unit.fates) > 1 else []
        return tuple(units)

    def _make_file_unit(self, wear: Wear, object_: int, indices: tuple[int, ...], num_synced: int) -> Unit:
        before = self._file(object_, indices[:num_synced])
        return file_unit(before, [self._operations[i] for i in indices[num_synced:]], wear)

    def _make_file(self, object_: int, indices: tuple[int, ...]) -> File:
        """The file after these changes of it."""
        if not indices:
            node = self._blank.get(object_)
            return node if isinstance(node, File) else File(b"", 0.0)
        op = self._operations[indices[-1]]
        return File(changed(self._file(object_, indices[:-1]).data, op), op.t_s)

    def _make_entry_syncs(self, *, forces_all: bool) -> dict[int, list[Operation]]:
        """Index of each change of entries -> the syncs that make it durable."""
        return {
            op.index: [sync for sync in self._syncs if self._forces_entry(sync, op, forces_all=forces_all)]
            for op in self._operations
            if op.kind in CHANGES_ENTRIES
        }

    def _is_forced(self, cut: Cut, syncs: Sequence[Operation]) -> bool:
        return any(self.order.holds(cut, sync) for sync in syncs)

    def _forces_entry(self, sync: Operation, op: Operation, *, forces_all: bool) -> bool:
        if not self.order.is_before(op, sync):
            return False
        if sync.kind is Kind.SYNC_ALL or forces_all:
            return True
        return sync.object == (op.to_directory if op.kind is Kind.RENAME else op.directory)

    def _forces_data(self, sync: Operation, op: Operation) -> bool:
        return self.order.is_before(op, sync) and (sync.kind is Kind.SYNC_ALL or sync.object == op.object)

    def _in_order(self, lost: Sequence[Operation]) -> Unit:
        """The changes of entries of which the journal holds a beginning; ranks may have been interleaved otherwise."""
        sets: dict[frozenset[int], None] = {frozenset(): None}
        for op in lost:
            needed = frozenset(other.index for other in lost if self.order.is_before(other, op))
            for kept in list(sets):
                if needed <= kept:
                    sets[kept | {op.index}] = None
        whole = frozenset(op.index for op in lost)
        fates = [
            Fate("kept" if kept == whole else _lost_in_order(len(whole - kept)), kept=kept)
            for kept in sorted(sets, key=len)
        ]
        return Unit(tuple(lost), tuple(fates))


def _lost_in_order(num_lost: int) -> str:
    return "lost" if num_lost == 1 else f"lost, as were the next {num_lost - 1} changes of names"


def _indices(ops: Sequence[Operation]) -> tuple[int, ...]:
    return tuple([op.index for op in ops])


def _by_object(ops: Sequence[Operation]) -> dict[int, list[Operation]]:
    found: dict[int, list[Operation]] = {}
    for op in ops:
        if op.kind in CHANGES_DATA:
            found.setdefault(op.object, []).append(op)
    return found
