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
from collections.abc import Sequence
from typing import Literal, get_args

from harness.crashstates.cuts import Cut, Order
from harness.crashstates.operation import CHANGES_DATA, CHANGES_ENTRIES, Kind, Operation, Recording
from harness.crashstates.tree import File, Tree, changed
from harness.crashstates.units import Fate, Unit, Wear, entry_unit, file_unit

ModelName = Literal["kill", "ext4-ordered", "posix-min", "alice"]
MODEL_NAMES: tuple[ModelName, ...] = get_args(ModelName)  # the weakest first: each allows what those before it do
_WEAR: dict[ModelName, Wear] = {"kill": "kill", "ext4-ordered": "ordered", "posix-min": "any", "alice": "garbage"}


class Situation:
    """One cut under one model: what may be lost there.

    Attributes:
        units: independent of each other but for ``allows``.
    """

    def __init__(self, model: ModelName, cut: Cut, base: Tree, pending: Sequence[Operation], units: tuple[Unit, ...]):
        self.model = model
        self.cut = cut
        self.units = units
        self._base = base
        self._pending = pending  # changes of entries from the first on that may be lost
        self._optional = frozenset(op.index for unit in units for op in unit.operations)

    @property
    def num_assignments(self) -> int:
        product = 1
        for unit in self.units:
            product *= len(unit.fates)
        return product

    def fates(self, chosen: Sequence[int]) -> list[Fate]:
        return [unit.fates[i] for unit, i in zip(self.units, chosen, strict=True)]

    def allows(self, chosen: Sequence[int]) -> bool:
        """Whether these fates go together."""
        if self.model != "ext4-ordered":
            return True
        fates = self.fates(chosen)
        kept = frozenset().union(*(fate.kept for fate in fates))
        replacing = {op.object for op in self._pending if op.replaced is not None and op.index in kept}
        return all(fate.word == "kept" for fate in fates if fate.file is not None and fate.file[0] in replacing)

    def tree(self, chosen: Sequence[int]) -> Tree:
        """The file tree after the crash; ``chosen`` is the number of each unit's fate."""
        tree = self._base.copy()
        fates = self.fates(chosen)
        for fate in fates:
            if fate.file is not None:
                tree.nodes[fate.file[0]] = fate.file[1]
        kept = frozenset().union(*(fate.kept for fate in fates))
        appeared = frozenset().union(*(fate.appeared for fate in fates))
        vanished = frozenset().union(*(fate.vanished for fate in fates))
        for op in self._pending:
            if op.index in kept or op.index not in self._optional:
                tree.apply(op)
            elif op.index in appeared:
                tree.appear(op)
            elif op.index in vanished:
                tree.vanish(op)
        return tree


class Models:
    """The situations of one recording."""

    def __init__(self, recording: Recording) -> None:
        self.order = Order(recording)
        self._blank = Tree(recording)
        self._syncs = [op for op in recording.operations if op.kind in (Kind.SYNC, Kind.SYNC_ALL)]
        # What a file is found as depends on few things: how much of it was synced, how much was written.
        self._file_unit = functools.cache(self._make_file_unit)
        self._by_index = {op.index: op for op in recording.operations}

    def at(self, model: ModelName, cut: Cut) -> Situation:
        """What may be lost if the crash comes at ``cut``."""
        ops = self.order.operations(cut)
        if model == "kill":
            return self._killed(cut, ops)
        syncs = [op for op in self._syncs if self.order.holds(cut, op)]
        base, units = self._blank.copy(), list[Unit]()
        entries = [op for op in ops if op.kind in CHANGES_ENTRIES]
        lost = [op for op in entries if not any(self._forces_entry(model, sync, op) for sync in syncs)]
        first_lost = lost[0].index if lost else len(self._by_index)
        for op in entries:
            if op.index < first_lost:
                base.apply(op)
        for object_, changes in _by_object(ops).items():
            num_synced = sum(any(self._forces_data(sync, op) for sync in syncs) for op in changes)
            if num_synced:
                base.nodes[object_] = self._file(object_, tuple(op.index for op in changes[:num_synced]))
            if changes[num_synced:]:
                indices = tuple(op.index for op in changes)
                units.append(self._file_unit(_WEAR[model], object_, indices, num_synced))
        if model == "ext4-ordered":
            units += [self._in_order(lost)] if lost else []
        else:
            units += [entry_unit(op, is_split=model == "alice") for op in lost]
        return Situation(model, cut, base, [op for op in entries if op.index >= first_lost], tuple(units))

    def _killed(self, cut: Cut, ops: Sequence[Operation]) -> Situation:
        base = self._blank.copy()
        for op in ops:
            base.apply(op)
        units = []
        lasts = [self.order.by_rank[rank][position - 1] for rank, position in enumerate(cut) if position]
        for last in lasts:
            # A write may be cut only as long as nobody can know that it was done.
            if last.kind is Kind.WRITE and not any(self.order.is_before(last, other) for other in lasts):
                changes = _by_object(ops)[last.object]
                if changes[-1] is last:
                    unit = self._file_unit("kill", last.object, tuple(op.index for op in changes), len(changes) - 1)
                    units += [unit] if len(unit.fates) > 1 else []
        return Situation("kill", cut, base, (), tuple(units))

    def _make_file_unit(self, wear: Wear, object_: int, indices: tuple[int, ...], num_synced: int) -> Unit:
        before = self._file(object_, indices[:num_synced])
        return file_unit(before, [self._by_index[i] for i in indices[num_synced:]], wear)

    def _file(self, object_: int, indices: tuple[int, ...]) -> File:
        node = self._blank.nodes.get(object_)
        file = node if isinstance(node, File) else File(b"", 0.0)
        for index in indices:
            op = self._by_index[index]
            file = File(changed(file.data, op), op.t_s)
        return file

    def _forces_entry(self, model: ModelName, sync: Operation, op: Operation) -> bool:
        if not self.order.is_before(op, sync):
            return False
        if sync.kind is Kind.SYNC_ALL or model == "ext4-ordered":
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


def _by_object(ops: Sequence[Operation]) -> dict[int, list[Operation]]:
    found: dict[int, list[Operation]] = {}
    for op in ops:
        if op.kind in CHANGES_DATA:
            found.setdefault(op.object, []).append(op)
    return found
