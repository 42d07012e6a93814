"""The calls of a save, followed one by one: whose they are, in which order, and what they say of names and files.

What each system call does is written in opening, naming and writing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.crashstates.operation import CHANGES_DATA, CHANGES_ENTRIES, Kind, Operation
from harness.crashstates.ranks import markers
from harness.crashstates.record.descriptors import Description, Descriptors, Process
from harness.crashstates.record.messages import Clock, Clocks
from harness.crashstates.record.namespace import LostTrack, Namespace, Place
from harness.crashstates.record.running import Lines
from harness.crashstates.record.strace import Call, Fd, Value
from harness.errors import RecordError

FORKS = frozenset({"clone", "clone3", "fork", "vfork"})
_SENDS = {"write": 0, "writev": 0, "sendto": 0, "sendmsg": 0, "sendfile": 0, "splice": 2}  # which argument is sent to
_OF_DESCRIPTOR = re.compile(r"/(?:proc/(?:self|thread-self|\d+)|dev)/fd/(\d+)")


class CannotFollow(Exception):
    """A sentence: a call went well, and what it did cannot be told from its record."""


@dataclass
class Follower:
    """Follows the calls of all ranks; it starts from what their processes had open when the record began.

    Args:
        threads: thread id -> its process, of those there were when the record began.
        processes: by process id, likewise.
        began_s: when the record began, in seconds since the epoch.
        effects: what the system calls do, by name.

    Attributes:
        operations: all, those outside of the checkpoint directory as well; their ``known`` counts all.
        problems: sentences.
        unsure: object -> why its bytes may not be those that its operations make.
        changed_outside: file that is not ours -> the call that changed what was in it.
    """

    namespace: Namespace
    ranks: int
    threads: dict[int, int]
    processes: dict[int, Process]
    began_s: float
    effects: Mapping[str, Effect]
    operations: list[Operation] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    unsure: dict[int, str] = field(default_factory=dict)
    changed_outside: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clocks = Clocks(self.ranks)
        self._lines = Lines((), {})
        self._made: dict[tuple[int, str], Clock] = {}  # entry -> what was known to who made it
        self._written: dict[int, Clock] = {}  # file -> what was known to who wrote it last
        self._acknowledged: list[tuple[int, Clock]] = []  # the step, and what was known to the rank at its end
        self._pythons: dict[int, set[int]] = {}  # process that says when its threads meet -> its threads of Python
        self._births: dict[int, Call] = {}  # process or thread id -> the call that started it
        self._ahead: set[int] = set()  # lines where calls ended that were followed before their turn

    def follow(self, calls: Sequence[Call]) -> None:
        """Follow all calls of a log.

        Raises:
            RecordError: one is of a process that does not belong to a rank.
        """
        self._births = {call.result: call for call in calls if call.name in FORKS and call.result}
        self._lines = Lines(calls, {tid: call for tid, call in self._births.items() if not _is_thread(call)})
        ends = [(call.ended, True, call) for call in calls if call.is_done and call.name in self.effects]
        begins = [(call.began, False, call) for call in calls if call.is_done and call.name in _SENDS]
        for line, has_ended, call in sorted(begins + ends, key=lambda event: event[:2]):
            if not has_ended:
                self._begin_to_send(call)
            elif line not in self._ahead:
                self._end(call, calls)

    def _end(self, call: Call, calls: Sequence[Call]) -> None:
        """Follow a call; one that it needs may have done its work, and be seen returning only a moment later."""
        overlapping = self._overlapping(call, calls)
        while True:
            try:
                self._apply(call)
                return
            except LostTrack as lost:
                if not self._apply_one(overlapping):
                    self.problems.append(f"the record lost track: {lost} ({self._at(call)})")
                    return

    def _overlapping(self, call: Call, calls: Sequence[Call]) -> Iterator[Call]:
        others = [
            other
            for other in calls
            if other.began < call.ended < other.ended and other.is_done and other.name in self.effects
        ]
        yield from sorted(others, key=lambda other: other.began)

    def _apply_one(self, calls: Iterator[Call]) -> bool:
        for call in calls:
            if call.ended not in self._ahead:
                try:
                    self._apply(call)
                except LostTrack:
                    continue
                self._ahead.add(call.ended)
                return True
        return False

    def _apply(self, call: Call) -> None:
        try:
            self.effects[call.name](self, call)
        except CannotFollow as trouble:
            self.problems.append(f"{trouble} ({self._at(call)})")

    def _begin_to_send(self, call: Call) -> None:
        to = call.arguments[_SENDS[call.name]]
        if isinstance(to, Fd) and call.result:
            self.clocks.send(self.process(call).rank, to.path, call.result, self.apart(call))

    def _at(self, call: Call) -> str:
        return f"{call.name}{self.where(call)}"

    def where(self, call: Call) -> str:
        """`` at file:line``, for a sentence; empty if it is not known."""
        site = self._lines.of(call)
        return f" at {site}" if site else ""

    # --- whose call it is

    def process(self, call: Call) -> Process:
        """The process that made a call."""
        return self.process_of(call.tid)

    def process_of(self, tid: int) -> Process:
        """The process of a thread; a new process is made from its parent's as it is now."""
        if tid not in self.threads:
            birth = self._births.get(tid)
            if birth is None:
                raise RecordError(f"the record has calls of thread {tid}, which no rank started")
            parent = self.process_of(birth.tid)
            if _is_thread(birth):
                self.threads[tid] = self.threads[birth.tid]
            else:
                self.threads[tid] = tid
                self.processes[tid] = parent.child(_flags(birth))
        return self.processes[self.threads[tid]]

    def apart(self, call: Call) -> int | None:
        """The process, if what this thread learns is not known to its rank at once; see Clocks."""
        pid = self.threads[call.tid]
        return None if call.tid in self._pythons.get(pid, {call.tid}) else pid

    def descriptors(self, call: Call) -> Descriptors:
        return self.process(call).descriptors

    # --- what it is about

    def place(self, call: Call, path: Value, directory: Value = None, *, follows_last: bool = False) -> Place:
        """Where a path argument leads. The rank learns of those who made the way there.

        Raises:
            LostTrack, CannotFollow
        """
        if not isinstance(path, bytes):
            raise CannotFollow("a path could not be read")
        text = path.decode(errors="surrogateescape")
        process = self.process(call)
        start = process.cwd.object
        if follows_last and (link := _OF_DESCRIPTOR.fullmatch(text)):
            return self.namespace.place_of(self.file(call, Fd(int(link[1]), "")).object)
        if isinstance(directory, Fd) and directory.number >= 0 and not text.startswith("/"):
            start = self.file(call, directory).object
        if not text:  # AT_EMPTY_PATH: the descriptor's own file
            return self.namespace.place_of(start)
        place = self.namespace.find(start, text, follows_last=follows_last)
        for entry in place.walked:
            if entry in self._made:
                self.clocks.join(process.rank, self._made[entry])
        return place

    def existing(self, call: Call, path: Value, directory: Value = None, *, follows_last: bool = False) -> Place:
        """As ``place``, for a call that cannot have gone well unless something stands there."""
        place = self.place(call, path, directory, follows_last=follows_last)
        if place.object is not None:
            return place
        if self.namespace.objects[place.directory].is_ours:
            raise LostTrack(f"{self.namespace.shown(place.directory, place.name)} is not there")
        return replace(place, object=self.namespace.make_found(place.directory, place.name))

    def file(self, call: Call, fd: Value) -> Description:
        """What a descriptor that belongs to a file or directory stands for.

        Raises:
            LostTrack, CannotFollow
        """
        if not isinstance(fd, Fd):
            raise CannotFollow("a file descriptor could not be read")
        descriptors = self.descriptors(call)
        if fd.number not in descriptors.files:  # opened before the record began, or handed over by another process
            if not fd.path.startswith("/"):
                raise CannotFollow(f"file descriptor {fd.number} is not known")
            number = self.namespace.find(self.namespace.top, fd.path, follows_last=False).object
            if number is None:
                number = self.namespace.make_unknown(fd.path)
            descriptors.put(fd.number, Description(number, offset=None), closes=False)
        return descriptors.files[fd.number]

    def learn_bytes(self, call: Call, object_: int) -> None:
        """The rank has read a file: it knows who wrote it."""
        if object_ in self._written:
            self.clocks.join(self.process(call).rank, self._written[object_])

    # --- what it did

    def emit(self, call: Call, kind: Kind, path: str, **fields: Any) -> None:
        """One more operation; ``fields`` as ``Kind`` says."""
        rank = self.process(call).rank
        if (apart := self.apart(call)) is not None:
            self.clocks.meet(rank, apart)
        op = Operation(
            index=len(self.operations),
            rank=rank,
            kind=kind,
            call=call.name if kind not in (Kind.BEGIN, Kind.ACK) else "save",
            path=path,
            site=self._lines.of(call),
            t_s=call.t_s,
            known=self.clocks.of(rank),
            **fields,
        )
        self.operations.append(op)
        clock = self.clocks.tick(rank)
        if kind in CHANGES_ENTRIES:
            self._made[op.directory, op.name] = clock
            if kind is Kind.RENAME:
                self._made[op.to_directory, op.to_name] = clock
        elif kind in CHANGES_DATA:
            self._written[op.object] = clock

    def hear(self, call: Call, data: bytes) -> None:
        """What a process wrote to /dev/null: perhaps a marker."""
        mark = markers.parse(data)
        if mark is None:
            return
        rank = self.process(call).rank
        match mark.word:
            case "threads":
                self._pythons.setdefault(self.threads[call.tid], set()).update(map(int, mark.value.split()))
            case "unseen":
                self._pythons.pop(self.threads[call.tid], None)
                self.clocks.meet(rank, self.threads[call.tid])
            case "issued":
                self.clocks.issue(rank, self.threads[call.tid])
            case "met":
                self.clocks.meet(rank, self.threads[call.tid])
            case "begin":  # it was told to, once all ranks had answered that they were done with the step before
                step = int(mark.value)
                for other, clock in self._acknowledged:
                    if other != step:
                        self.clocks.join(rank, clock)
                self.emit(call, Kind.BEGIN, "", step=step)
            case "ack":
                self.emit(call, Kind.ACK, "", step=int(mark.value))
                self._acknowledged.append((int(mark.value), self.clocks.of(rank)))


Effect = Callable[[Follower, Call], None]


def _flags(birth: Call) -> frozenset[str]:
    """Of the call that started a process or a thread."""
    return words(next((a["flags"] for a in birth.arguments if isinstance(a, dict) and "flags" in a), None))


def _is_thread(birth: Call) -> bool:
    return "CLONE_THREAD" in _flags(birth)


def words(value: Value) -> frozenset[str]:
    """The flags of ``A|B``."""
    return frozenset(value.split("|")) if isinstance(value, str) else frozenset()


def number_of(value: Value) -> int:
    """The number of a descriptor, or a number.

    Raises:
        CannotFollow
    """
    if isinstance(value, Fd):
        return value.number
    if not isinstance(value, int):
        raise CannotFollow(f"{value!r} should have been a number")
    return value
