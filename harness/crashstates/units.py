"""What of a recording a crash may lose by itself, and in which ways.

A unit is a change of entries (a rename, say) or all that was written to one file since its last sync. Its fates run
from lost to kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.crashstates.operation import Kind, Operation
from harness.crashstates.tree import File, changed

PAGE_BYTES = 4096
SECTOR_BYTES = 512
MOST_PREFIXES = 12  # of the writes to one file: the first, the last, and some between

Wear = Literal["kill", "ordered", "any", "garbage"]


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a unit.

    Attributes:
        word: for people; ``kept`` if nothing is missing.
        kept: operations on entries that took effect.
        appeared: renames of which only the new name came about.
        vanished: renames of which only the old name went.
        file: (object, its bytes) for what was written to a file.
    """

    word: str
    kept: frozenset[int] = frozenset()
    appeared: frozenset[int] = frozenset()
    vanished: frozenset[int] = frozenset()
    file: tuple[int, File] | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """``fates`` begin with the one that loses all and end with ``kept``."""

    operations: tuple[Operation, ...]
    fates: tuple[Fate, ...]

    @property
    def kept(self) -> int:
        return len(self.fates) - 1


def entry_unit(op: Operation, *, is_split: bool) -> Unit:
    """One change of entries: all or nothing; with ``is_split`` a rename may also be done by half."""
    index = frozenset({op.index})
    fates = [Fate("lost"), Fate("kept", kept=index)]
    if is_split and op.kind is Kind.RENAME:
        fates[1:1] = [
            Fate("done by half: both names are there", appeared=index),
            Fate("done by half: neither name is there", vanished=index),
        ]
    return Unit((op,), tuple(fates))


def file_unit(before: File, ops: Sequence[Operation], wear: Wear) -> Unit:
    """What was written to one file since its last sync.

    Args:
        before: the file at that sync; empty if there was none.
        ops: the writes and truncations since, at least one.
        wear: how the file may be found. ``kill``: the page cache survives, only the last write may be cut, at a page.
            ``ordered``: its length never runs ahead of its data. ``any``: it may, the rest being zeros; any page may
            be missing, any sector be cut. ``garbage``: and a page may hold anything.
    """
    fates: dict[bytes, Fate] = {}
    object_ = ops[0].object
    steps = [before.data]
    for op in ops:
        steps.append(changed(steps[-1], op))
    last = File(steps[-1], ops[-1].t_s)

    def add(word: str, data: bytes, t_s: float = ops[-1].t_s) -> None:
        if data != last.data:
            fates.setdefault(data, Fate(word, file=(object_, File(data, t_s))))

    if wear == "kill":
        for size_bytes, data in _torn(steps[-2], ops[-1], at_pages_only=True):
            add(f"cut after {size_bytes} bytes of the last write", data)
    else:
        add("lost", before.data, before.t_s)
        _add_prefixes(add, steps, ops, at_pages_only=wear == "ordered")
        # What a truncation has freed cannot come back where names and lengths change in order.
        still_there = min(map(len, steps)) if wear == "ordered" else len(before.data)
        _add_missing_pages(add, before.data[:still_there], steps[-1], in_place_only=wear == "ordered")
        if wear != "ordered":
            _add_zero_tails(add, steps)
        if wear == "garbage" and steps[-1]:
            add("its last page holds garbage", _with_garbage(steps[0], steps[-1]))
    kept = Fate("kept", file=(object_, last))
    return Unit(tuple(ops), (*fates.values(), kept))


def _add_prefixes(
    add: Callable[..., None], steps: Sequence[bytes], ops: Sequence[Operation], *, at_pages_only: bool
) -> None:
    for i in _spread(len(ops)):
        if i:
            add(f"only the first {i} of {len(ops)} writes to it", steps[i], ops[i - 1].t_s)
        for size_bytes, data in _torn(steps[i], ops[i], at_pages_only=at_pages_only):
            add(f"torn: {size_bytes} of {len(ops[i].data)} bytes of write {i + 1}", data, ops[i].t_s)


def _torn(data: bytes, op: Operation, *, at_pages_only: bool) -> Iterator[tuple[int, bytes]]:
    """(bytes that arrived, the file) for some places where one write may be cut."""
    length = len(op.data)
    first = PAGE_BYTES - op.offset % PAGE_BYTES
    last = length - (op.offset + length) % PAGE_BYTES
    places = {first, last}
    if not at_pages_only:
        places |= {SECTOR_BYTES - op.offset % SECTOR_BYTES, length // 3, length - 1}
    for size_bytes in sorted(p for p in places if 0 < p < length):
        end = op.offset + size_bytes
        yield size_bytes, data[: op.offset].ljust(op.offset, b"\0") + op.data[:size_bytes] + data[end:]


def _add_zero_tails(add: Callable[..., None], steps: Sequence[bytes]) -> None:
    length = len(steps[-1])
    for i in sorted({0, len(steps) - 2}):
        if len(steps[i]) < length:
            add(f"zeros after {len(steps[i])} of its {length} bytes", steps[i].ljust(length, b"\0"))


def _add_missing_pages(add: Callable[..., None], before: bytes, after: bytes, *, in_place_only: bool) -> None:
    """One page is as it was, zeros if the file did not reach so far, while all others are new; or the other way."""
    length = len(after)
    num_pages = -(-length // PAGE_BYTES)
    if num_pages < 2:
        return
    for page in sorted({0, num_pages // 2, num_pages - 1}):
        start, end = page * PAGE_BYTES, min((page + 1) * PAGE_BYTES, length)
        if in_place_only and end > len(before):
            continue  # such a page is new, and is written before the file's length says so
        old = before[start:end].ljust(end - start, b"\0")
        add(f"page {page + 1} of {num_pages} is missing", after[:start] + old + after[end:])
        if len(before) >= length:
            add(f"only page {page + 1} of {num_pages} is new", before[:start] + after[start:end] + before[end:length])


def _with_garbage(before: bytes, after: bytes) -> bytes:
    """Of the bytes that were written, those in the last page; what had been synced before stays as it is."""
    first = next((i for i, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), len(before))
    first = min(first, len(after) - 1)
    start = max(first, (len(after) - 1) // PAGE_BYTES * PAGE_BYTES)
    end = len(after)
    return after[:start] + bytes(byte ^ 0xA5 for byte in after[start:end]) + after[end:]


def _spread(count: int) -> list[int]:
    if count <= MOST_PREFIXES:
        return list(range(count))
    return sorted({round(i * (count - 1) / (MOST_PREFIXES - 1)) for i in range(MOST_PREFIXES)})
