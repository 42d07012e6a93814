"""Where trouble can come: the system calls of an undisturbed save that have to do with the checkpoint directory."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.crashstates.record.recording import Origin
from harness.crashstates.record.running import Lines, marker
from harness.crashstates.record.strace import Call, Fd
from harness.crashstates.record.tracing import WRITING


def _calls(text: str) -> frozenset[str]:
    return frozenset(text.split())


WRITES = _calls("write writev pwrite64 pwritev pwritev2 sendfile copy_file_range truncate ftruncate fallocate")
SYNCS = _calls("fsync fdatasync")
CLOSES = _calls("close")
OPENS = _calls("open openat openat2 creat")
LOOKUPS = OPENS | _calls("stat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat")
NAMES = _calls("rename renameat renameat2 link linkat symlink symlinkat unlink unlinkat rmdir mkdir mkdirat")
PATHS = LOOKUPS | NAMES | {"truncate"}
"""Calls whose strings are paths."""
TRACED = tuple({*WRITING, *LOOKUPS})
_FORKS = _calls("clone clone3 fork vfork")
_WRITTEN_TO = {"copy_file_range": 2}  # which argument; else the first


def path_below(call: Call, root: str, cwd: str = "/") -> str | None:
    """The path below ``root`` that a call is about, relative to it; the last one if there are several; None: none.

    Args:
        root: a real path.
        cwd: of the process.
    """
    found = None
    for path in _paths(call, cwd):
        if path == root or path.startswith(f"{root}/"):
            found = path[len(root) + 1 :] or "."
    return found


def _paths(call: Call, cwd: str) -> Iterator[str]:
    directory = cwd
    for number, argument in enumerate(call.arguments):
        if isinstance(argument, Fd):
            directory = argument.path
            if call.name not in PATHS and number == _WRITTEN_TO.get(call.name, 0):
                yield argument.path
        elif isinstance(argument, bytes) and call.name in PATHS:
            path = os.path.normpath(os.path.join(directory, os.fsdecode(argument)))  # noqa: PTH118 - Path is slow
            yield path if argument else directory
            directory = cwd
    if call.fd is not None:
        yield call.fd.path


def is_of_no_file(call: Call) -> bool:
    """Whether it is about a socket, a pipe or the like, where no trouble with a disk can come from."""
    return any(isinstance(argument, Fd) and not argument.path.startswith("/") for argument in call.arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A call of the last save, undisturbed.

    Attributes:
        k: it is its thread's k-th call of that name in this save, from 1.
        total_k: likewise, in all saves.
        path: what it was about, relative to the checkpoint directory.
        site: ``file:line`` of the user's code; None where it could not be had.
    """

    rank: int
    call: str
    k: int
    total_k: int
    path: str
    site: str | None = None


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """What the undisturbed saves did.

    Attributes:
        positions: of the last save, in the order of the calls.
        bytes_written: rank -> path -> how much the last save wrote to it.
    """

    positions: tuple[Position, ...]
    bytes_written: dict[int, dict[str, int]]

    def has(self, call: str, path: str) -> bool:
        """Whether such a call was about ``path``."""
        return any((p.call, p.path) == (call, path) for p in self.positions)

    def of(self, calls: frozenset[str]) -> list[Position]:
        """Those of these calls, rank by rank."""
        return sorted((p for p in self.positions if p.call in calls), key=lambda p: p.rank)


def pilot_of(calls: Sequence[Call], origin: Origin, root: str, step: int) -> Pilot:
    """What there is to be learnt from the record of undisturbed saves.

    Args:
        root: the checkpoint directory's real path.
        step: the last one.
    """
    ranks = {pid: rank for rank, pid in enumerate(origin.pids)}
    rank_of = {tid: ranks[pid] for tid, pid in origin.threads.items()}
    cwds = {rank: origin.cwds[pid] for pid, rank in ranks.items()}
    for call in sorted(calls, key=lambda call: call.began):
        if call.name in _FORKS and call.result and call.tid in rank_of:
            rank_of[call.result] = rank_of[call.tid]
    begun: set[int] = set()  # ranks
    lines = Lines(calls, {})
    total: Counter[tuple[int, str]] = Counter()
    before: Counter[tuple[int, str]] = Counter()
    positions: list[Position] = []
    written: dict[int, dict[str, int]] = defaultdict(Counter)
    for call in calls:
        rank = rank_of.get(call.tid)
        if rank is None:
            continue
        if (mark := marker(call)) is not None:
            if mark.word == "begin" and mark.value == str(step):
                begun.add(rank)
                before |= Counter({key: n for key, n in total.items() if rank_of[key[0]] == rank})
            continue  # in a trial there are none
        key = (call.tid, call.name)
        total[key] += 1
        path = path_below(call, root, cwds[rank])
        if path is None or rank not in begun:
            continue
        positions.append(
            Position(
                rank=rank,
                call=call.name,
                k=total[key] - before[key],
                total_k=total[key],
                path=path,
                site=lines.of(call),
            )
        )
        if call.name in WRITES and call.is_done and call.result:
            written[rank][path] += call.result
    return Pilot(positions=tuple(positions), bytes_written={rank: dict(sizes) for rank, sizes in written.items()})
