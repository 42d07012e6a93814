"""Read the records of ranks, and of a large run only as much at a time as one process wrote."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from harness.event_fields import missing, must_be, wrong
from harness.events import VIEWS, Place, Process, T, Views, order
from harness.wire import Event, Kind

# Beside OSError: what reading a JSON file and taking it apart may raise, whatever stands in it.
UNREADABLE = (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError)
# The kinds that come with every update. Of a large record these are read again where someone looks at them.
OF_EVERY_UPDATE = frozenset(
    (Kind.PHASE, Kind.BATCH, Kind.COLLECTIVE, Kind.UPDATE, Kind.SKIPPED, Kind.GRADIENT, Kind.SHM)
)

_OF_ALL: Mapping[str, type] = {"t": int, "kind": str, "step": int, "phase": str}
_NUMBER = "(0|[1-9][0-9]{0,8})"
_OF_PROCESS = re.compile(
    rf"rank-{_NUMBER}/(?:events-{_NUMBER}\.jsonl|(?:stacks|stdout|stderr)-{_NUMBER}\.txt|flight-{_NUMBER}\.json)"
)
# Filling the slots takes less than half the time of calling the frozen class: a second in a million events.
_new = object.__new__
_rank, _restart, _seq, _t_ns, _kind, _step, _phase, _data = (getattr(Event, f.name).__set__ for f in fields(Event))
_LINES: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def of_processes(run_dir: Path, pattern: str) -> Iterator[tuple[Path, int, int]]:
    """The files of this kind with their rank and restart; copies and whatever else has a like name are left out."""
    for path in sorted(run_dir.glob(f"rank-*/{pattern}")):
        if found := _OF_PROCESS.fullmatch(path.relative_to(run_dir).as_posix()):
            yield path, int(found[1]), int(next(number for number in found.groups()[1:] if number is not None))


def read_processes(run_dir: Path, damaged: list[str]) -> Iterator[Process]:
    """The record of each process; ``damaged`` gets a line for each line that cannot be read."""
    for path, rank, restart in of_processes(run_dir, "events-*.jsonl"):
        yield _read(path, rank, restart, damaged)


def size_bytes(run_dir: Path) -> int:
    """Of all records together."""
    return sum(path.stat().st_size for path, _, _ in of_processes(run_dir, "events-*.jsonl") if path.is_file())


class EventFiles:
    """The events of a record that is too large to be kept: what is kept grows with the ranks, not with the updates.

    Attributes:
        kept: the events of all kinds but ``OF_EVERY_UPDATE``, by (t_ns, rank, seq).
        counts: kind -> how many events of it are on record.
        last_ns: when the last event was recorded; None if there is none.
        exits: the processes that left an ``exit`` event, however late.
        last_restart: the highest that left any event, however late; 0 if none did.
        damaged: see ``read_processes``.
    """

    def __init__(self, run_dir: Path, until_ns: int | None) -> None:
        """Read all of it once.

        Args:
            until_ns: later events do not count; None: all do.
        """
        self._until_ns = until_ns
        self._paths = {(rank, restart): path for path, rank, restart in of_processes(run_dir, "events-*.jsonl")}
        self._last: tuple[Place, Process] | None = None
        self._views = Views(VIEWS)
        self.counts: Counter[str] = Counter()
        self.last_ns: int | None = None
        self.exits: set[Place] = set()
        self.damaged: list[str] = []
        self.last_restart = 0
        kept: list[Event] = []
        for place, path in [*self._paths.items()]:
            whole = _read(path, *place, self.damaged)
            if whole.events:
                self.last_restart = max(self.last_restart, place[1])
            if Kind.EXIT in whole.by_kind:
                self.exits.add(place)
            process = self._counted(whole)
            if not process.events:
                del self._paths[place]
                continue
            self._views.add(process)
            for kind, events in process.by_kind.items():
                self.counts[kind] += len(events)
                if kind not in OF_EVERY_UPDATE:
                    kept.extend(events)
            self.last_ns = max(process.events[-1].t_ns, self.last_ns or process.events[-1].t_ns)
        self.kept = tuple(sorted(kept, key=order))

    @property
    def places(self) -> Sequence[Place]:
        """Rank and restart of each process that has a record."""
        return [*self._paths]

    def process(self, rank: int, restart: int) -> Process:
        """One process; without events if it left no record. The last that was read is at hand."""
        place = rank, restart
        if self._last is None or self._last[0] != place:
            path = self._paths.get(place)
            found = Process(rank, restart, ()) if path is None else self._counted(_read(path, rank, restart, []))
            self._last = place, found
        return self._last[1]

    def of(self, kinds: Sequence[str], rank: int | None, restart: int | None, step: int | None) -> list[Event]:
        """As ``History.of``."""
        places = [(r, k) for r, k in self._paths if rank in (None, r) and restart in (None, k)]
        found = (self.process(*place).of(*kinds) for place in places)
        return sorted((e for events in found for e in events if step in (None, e.step)), key=order)

    def each(self, view: Callable[[Process], T]) -> Mapping[Place, T]:
        """As ``History.each``."""
        if (found := self._views.of(view)) is None:
            views = Views([view])
            for place in self._paths:
                views.add(self.process(*place))
            found = views.of(view)
        return found or {}

    def _counted(self, process: Process) -> Process:
        if self._until_ns is None or not process.events or process.events[-1].t_ns <= self._until_ns:
            return process
        events = [event for event in process.events if event.t_ns <= self._until_ns]
        return Process(process.rank, process.restart, events)


def _read(path: Path, rank: int, restart: int, damaged: list[str]) -> Process:
    where = f"{path.parent.name}/{path.name}"
    events = sorted(_events(path, where, rank, restart, damaged), key=lambda event: event.t_ns)  # stable: then by seq
    process = Process(rank, restart, events)
    found = {event.seq: said for each in process.by_kind.items() for event, said in wrong(*each)}
    if not found:
        return process
    damaged.extend(f"{where}:{seq}: {said}" for seq, said in sorted(found.items()))
    return Process(rank, restart, [event for event in events if event.seq not in found])


def _events(path: Path, where: str, rank: int, restart: int, damaged: list[str]) -> Iterator[Event]:
    try:
        text = path.read_bytes().rstrip(b"\0")  # zeros: room that a killed process left
    except OSError as error:
        damaged.append(f"{where}: cannot be read: {error.strerror}")
        return
    lines, newline, last = text.rpartition(b"\n")  # last: empty, or a line torn by the end of the process
    for seq, raw in enumerate(_parsed(lines) if newline else (), start=1):
        try:
            yield _event(rank, restart, seq, json.loads(raw) if isinstance(raw, bytes) else raw)
        except UNREADABLE as error:
            name = error.args[0] if isinstance(error, KeyError) else None
            said = error if name is None else missing("this event", name, _OF_ALL[name])
            damaged.append(f"{where}:{seq}: {said}")
    if last and not newline:
        damaged.append(f"{where}:1: the only line is torn")


def _parsed(lines: bytes) -> Sequence[Any]:
    """All lines parsed at once, in a third of the time that json needs; as they are if one of them cannot be.

    Whatever msgspec can read, json reads in the same way; json also reads NaN, and its errors are those to report.
    """
    num_lines = lines.count(b"\n") + 1
    if lines.startswith(b"{") and lines.count(b"\n{") + 1 == num_lines:  # else some may be empty, and are passed over
        with suppress(msgspec.MsgspecError, *UNREADABLE):
            found: list[Any] = _LINES.decode_lines(lines)
            if len(found) == num_lines:  # else two objects stand in one line
                return found
    return lines.split(b"\n")


def _event(rank: int, restart: int, seq: int, raw: Any) -> Event:
    if not isinstance(raw, dict):
        raise TypeError(f"an event is an object, not {type(raw).__name__}")
    t_ns, kind, step, phase = raw.pop("t"), raw.pop("kind"), raw.pop("step"), raw.pop("phase")
    if not (type(t_ns) is int and type(kind) is str and type(step) is int and type(phase) is str):
        told = zip(_OF_ALL.items(), (t_ns, kind, step, phase), strict=True)
        name, value, wanted = next((name, value, of) for (name, of), value in told if type(value) is not of)
        raise TypeError(must_be(f"{name} of this event", value, wanted.__name__))
    event = _new(Event)
    _rank(event, rank)
    _restart(event, restart)
    _seq(event, seq)
    _t_ns(event, t_ns)
    _kind(event, sys.intern(kind))
    _step(event, step)
    _phase(event, sys.intern(phase))
    _data(event, raw)
    return event
