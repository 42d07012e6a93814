"""Saves, recorded: ranks that save under strace, and what they did as operations on one file tree."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

from harness.crashstates.operation import CHANGES, CHANGES_ENTRIES, ROOT, Kind, Operation, Recording
from harness.crashstates.ranks.session import SAVE_S, SaveFailedError, Session
from harness.crashstates.record import naming, opening, writing
from harness.crashstates.record.descriptors import Descriptors, Process, WorkingDirectory
from harness.crashstates.record.follow import Follower
from harness.crashstates.record.namespace import Namespace, Sort
from harness.crashstates.record.strace import Call
from harness.crashstates.record.tracing import STRING_LIMIT_BYTES, WRITING, attach
from harness.crashstates.scratch import scratch
from harness.crashstates.tree import Directory, File, Link, Node, Tree
from harness.errors import RecordError

_EFFECTS = {**opening.EFFECTS, **naming.EFFECTS, **writing.EFFECTS}
_OF_NO_CHECKPOINT = re.compile(r"/(?:dev/(?!shm/)|proc/|sys/)|.*/__pycache__/")
_MAX_DIFFERENCES = 10  # more say no more


@dataclass(frozen=True)
class Origin:
    """What the ranks' processes were when the record began.

    Attributes:
        root: the checkpoint directory, as the ranks are told it.
        began_s: a time before it, in seconds since the epoch.
        pids: by rank.
        threads: thread id -> process id.
        cwds: process id -> its working directory.
    """

    root: Path
    began_s: float
    pids: tuple[int, ...]
    threads: dict[int, int]
    cwds: dict[int, str]

    @classmethod
    def of(cls, pids: Sequence[int], root: Path, began_s: float) -> Self:
        """Ask the kernel; the processes must be idle."""
        threads = {int(thread.name): pid for pid in pids for thread in Path(f"/proc/{pid}/task").iterdir()}
        cwds = {pid: str(Path(f"/proc/{pid}/cwd").readlink()) for pid in pids}
        return cls(root, began_s, tuple(pids), threads, cwds)


def record(session: Session, root: Path, steps: Sequence[int]) -> Recording:
    """Have ``session``'s ranks save ``steps`` into ``root``, an empty directory, and tell what they did.

    Returns:
        The recording, with the reasons why it cannot be relied on, if there are any. ``root`` is as the saves left it.

    Raises:
        UnavailableError: strace cannot trace here.
        SaverError: a save failed.
        RecordError: ``root`` is not an empty directory, or the record cannot be understood.
    """
    trace = traced(session, root, steps)
    if trace.failure is not None:
        raise trace.failure
    return recorded(trace.calls, trace.origin, steps)


@dataclass(frozen=True)
class Trace:
    """What was seen of saves.

    Attributes:
        failure: of the last save that was tried; None: all went well.
        step: of that save.
    """

    calls: list[Call]
    origin: Origin
    failure: SaveFailedError | None
    step: int


def traced(
    session: Session,
    root: Path,
    steps: Sequence[int],
    *,
    calls: Sequence[str] = WRITING,
    inject: Sequence[str] = (),
    deadline_s: float = SAVE_S,
    **hardship: Any,
) -> Trace:
    """The calls that ``record`` makes its recording of.

    Args:
        calls: system calls to trace.
        inject: as for ``attach``.
        deadline_s: of each save.
        hardship: of the first save, as for ``Savers.save``.
    """
    root = root.absolute()
    if not root.is_dir() or any(root.iterdir()):
        raise RecordError(f"{root} must be an empty directory: what is saved into it is compared with the record")
    with session.start_savers() as savers, scratch() as directory:
        began_s = time.time()
        log_path = directory / "strace.log"
        limit_bytes = STRING_LIMIT_BYTES
        with attach(savers.pids, log_path, calls=calls, string_limit_bytes=limit_bytes, inject=inject) as tracer:
            origin = Origin.of(savers.pids, root, began_s)
            failure = None
            try:
                for step in steps:
                    savers.save(step, root, deadline_s, **(hardship if step == steps[0] else {}))
            except SaveFailedError as error:
                failure = error
            tracer.detach()
            return Trace(tracer.new_calls(), origin, failure, step)


def recorded(calls: Sequence[Call], origin: Origin, steps: Sequence[int]) -> Recording:
    """The operations behind ``calls``, all of a log, compared with what is in ``origin.root`` now.

    Raises:
        RecordError: a save is not in the record, or a call is not of a rank's process.
    """
    namespace = Namespace(os.path.realpath(origin.root))
    follower = Follower(
        namespace, len(origin.pids), dict(origin.threads), _processes(namespace, origin), origin.began_s, _EFFECTS
    )
    follower.follow(calls)
    operations = _of_checkpoint(follower.operations, namespace, len(origin.pids))
    used = {number for op in operations for number in (op.directory, op.to_directory, op.object)}
    recording = Recording(
        root=str(origin.root),
        ranks=len(origin.pids),
        steps=tuple(steps),
        operations=tuple(operations),
        directories=frozenset(n for n in used | {ROOT} if n >= 0 and namespace.objects[n].sort is Sort.DIRECTORY),
    )
    _check_complete(recording)
    problems = [*follower.problems, *_outside(follower), *_idle_steps(recording), *_differences(recording)]
    problems += [why for number, why in follower.unsure.items() if number in namespace.inside]
    return replace(recording, problems=tuple(dict.fromkeys(problems)))


def late_changes(recording: Recording) -> Iterator[str]:
    """What a rank still did to the checkpoint directory when it had returned from a save, and no other had begun."""
    returned: dict[int, int] = {}  # rank -> step
    for op in recording.operations:
        if op.kind is Kind.BEGIN:
            returned.pop(op.rank, None)
        elif op.kind is Kind.ACK:
            returned[op.rank] = op.step
        elif op.kind in CHANGES and op.rank in returned:
            step = returned.pop(op.rank)  # once a save
            yield (
                f"something goes on after the save of step {step} has returned ({op.call} of {op.path}"
                f"{f', {op.site}' if op.site else ''}, rank {op.rank}): save must return when the step is safe; "
                "wait in it for the thread or process that writes"
            )


def _processes(namespace: Namespace, origin: Origin) -> dict[int, Process]:
    processes = {}
    for rank, pid in enumerate(origin.pids):
        cwd = namespace.find(namespace.top, origin.cwds[pid], follows_last=True).object
        if cwd is None:
            raise RecordError(f"rank {rank} works in {origin.cwds[pid]}, which is gone")
        processes[pid] = Process(rank, Descriptors(), WorkingDirectory(cwd))
    return processes


def _of_checkpoint(operations: Sequence[Operation], namespace: Namespace, ranks: int) -> list[Operation]:
    """Those that have to do with what is, or was, in the checkpoint directory; numbered anew, ``known`` likewise."""
    kept = [_concerns(op, namespace.inside) for op in operations]
    ways = {
        directory
        for op, is_kept in zip(operations, kept, strict=True)
        if is_kept and op.kind in CHANGES_ENTRIES
        for directory in (op.directory, op.to_directory)
    }
    kept = [
        is_kept or (op.kind is Kind.SYNC and op.object in ways) for op, is_kept in zip(operations, kept, strict=True)
    ]
    # counts[rank][n]: how many of the rank's first n operations are kept
    counts = [
        list(accumulate((is_kept for op, is_kept in zip(operations, kept, strict=True) if op.rank == rank), initial=0))
        for rank in range(ranks)
    ]
    chosen = (op for op, is_kept in zip(operations, kept, strict=True) if is_kept)
    return [
        replace(op, index=index, known=tuple(counts[rank][n] for rank, n in enumerate(op.known)))
        for index, op in enumerate(chosen)
    ]


def _concerns(op: Operation, inside: set[int]) -> bool:
    if op.kind in (Kind.BEGIN, Kind.ACK, Kind.SYNC_ALL):
        return True
    return not inside.isdisjoint({op.object, op.directory, op.to_directory, op.replaced})


def _check_complete(recording: Recording) -> None:
    """Every rank must have begun and ended every save."""
    found = {(op.rank, op.kind, op.step) for op in recording.operations if op.kind in (Kind.BEGIN, Kind.ACK)}
    for rank in range(recording.ranks):
        for step in recording.steps:
            for kind in (Kind.BEGIN, Kind.ACK):
                if (rank, kind, step) not in found:
                    raise RecordError(f"the record has no {kind.value} of rank {rank}'s save of step {step}")


def _idle_steps(recording: Recording) -> Iterator[str]:
    step_of_rank: dict[int, int] = {}
    busy = set()
    for op in recording.operations:
        if op.kind is Kind.BEGIN:
            step_of_rank[op.rank] = op.step
        elif op.kind is Kind.ACK:
            step_of_rank.pop(op.rank, None)
        elif op.kind in CHANGES:
            busy.add(step_of_rank.get(op.rank))
    for step in recording.steps:
        if step not in busy:
            yield f"the save of step {step} did nothing to the checkpoint directory before it returned"


def _outside(follower: Follower) -> Iterator[str]:
    """What the saves leave elsewhere: it is not put back as it was when a crash state is tried."""
    space = follower.namespace
    for (directory, name), number in space.entries.items():
        if number is None or directory in space.inside or not space.has_name(directory):
            continue
        thing, path = space.objects[number], f"{space.path(directory).rstrip('/')}/{name}"
        if thing.is_ours and thing.sort is Sort.FILE and not _OF_NO_CHECKPOINT.match(path):
            yield f"the save leaves {path} outside of the checkpoint directory, where no crash state is tried"
    for number, call in follower.changed_outside.items():
        path = space.path(number)
        if not _OF_NO_CHECKPOINT.match(path):
            yield f"the save changes {path} ({call}) outside of the checkpoint directory, where no crash state is tried"


def _differences(recording: Recording) -> Iterator[str]:
    """Where the operations lead to another tree than the one that the saves have left."""
    tree = Tree(recording)
    for op in recording.operations:
        tree.apply(op)
    ours, real = tree.visible(), dict(_real(Path(recording.root), ""))
    paths = [path for path in sorted(ours.keys() | real.keys()) if _differs(ours.get(path), real.get(path))]
    for path in paths[:_MAX_DIFFERENCES]:
        recorded_as, real_one = _described(ours.get(path)), _described(real.get(path))
        yield f"by the record, {path} is {recorded_as}; in the directory it is {real_one}"
    if len(paths) > _MAX_DIFFERENCES:
        yield f"and {len(paths) - _MAX_DIFFERENCES} other paths differ from the record"


def _real(directory: Path, prefix: str) -> Iterator[tuple[str, Node]]:
    for entry in os.scandir(directory):
        path = prefix + entry.name
        if entry.is_symlink():
            yield path, Link(os.readlink(entry.path))  # noqa: PTH115 - Path would simplify it
        elif entry.is_dir():
            yield path, Directory()
            yield from _real(Path(entry.path), f"{path}/")
        else:
            yield path, File(Path(entry.path).read_bytes(), 0.0)


def _differs(ours: Node | None, real: Node | None) -> bool:
    if isinstance(ours, File) and isinstance(real, File):
        return ours.digest != real.digest
    return ours != real


def _described(node: Node | None) -> str:
    match node:
        case None:
            return "absent"
        case File(data=data, digest=digest):
            return f"a file of {len(data)} bytes (blake2b {digest.hex()[:8]})"
        case Link(text):
            return f"a link to {text}"
        case _:
            return "a directory"
