"""Load a run directory as a History: immutable, merged over ranks and restarts, ordered by time."""

from __future__ import annotations

import gc
import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.effects import Found, load_effects
from harness.errors import RecordError
from harness.evidence import Asked, Flight, load_flight
from harness.plan import Plan, load_plan
from harness.wire import OUTCOME_JSON, Event, Kind

SIGTERM_HEADER = "chaos: SIGTERM"
_NUMBER = "(0|[1-9][0-9]{0,8})"
_OF_PROCESS = re.compile(
    rf"rank-{_NUMBER}/(?:events-{_NUMBER}\.jsonl|(?:stacks|stdout|stderr)-{_NUMBER}\.txt|flight-{_NUMBER}\.json)"
)
# Beside OSError: what reading a JSON file and taking it apart may raise, whatever stands in it.
UNREADABLE = (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError)


@dataclass(frozen=True, kw_only=True)
class AgentExit:
    """How torchrun's agent saw a rank end: from its own log, so None where it did not say.

    Attributes:
        exit_code: negative for a signal, as in subprocess.
    """

    pid: int
    local_rank: int
    exit_code: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the launcher saw of the whole run (outcome.json).

    Attributes:
        exit_code: of the agent; negative for a signal; None if it had to be killed on the deadline.
        timed_out: the scenario's deadline passed and the run was ended by force.
        leftovers: one line each for what was still there after the end: process, port, shared memory, open file.
        agent_exits: ranks that the agent reported as failed, in the order it did.
        asked: ranks that were asked for their stacks before they were ended.
    """

    exit_code: int | None
    timed_out: bool
    started_ns: int
    ended_ns: int
    leftovers: tuple[str, ...] = ()
    agent_exits: tuple[AgentExit, ...] = ()
    asked: tuple[Asked, ...] = ()

    @property
    def duration_s(self) -> float:
        return (self.ended_ns - self.started_ns) / 1e9


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The fault-free twin of a plan.

    Attributes:
        repeatable: two runs gave the same digests; None means that it was not tried.
        final: digests of the end state by name (``params optimizer buffers``), the same on all ranks for
            ``params`` and ``optimizer``; empty if the script has no model.
        finals: per rank the digests of its end state: of sharded states each has its own.
        updates: per rank, per step: the digests of the state after that update (``params optimizer buffers``, and
            ``rng`` if the random generators repeat themselves from run to run).
        starts: per rank the digests of the state before the first update (``params optimizer buffers``).
        epochs: of each update of rank 0 the pass over the data that it is made in, from 0; None: unknown.
        phases: of each phase the steps in which every rank entered it.
        saves, foreign_saves: per rank the steps after which it saved, with the checkpoint store and with other code.
        sample_ids: per rank, per step: the sample ids of that update, None if unknown.
        collectives: per rank, per step, per phase: what it sent, in order: (op, reduce_op, numel, dtype).
        magnitudes: of rank 0's final parameters: (name, number of elements, sum, L2 norm).
        effects: what stood in each place of side effects, but for what differs between two such runs.
        broken: the guarantees that the fault-free run itself breaks.
        reason: why there is nothing to compare with, if so.
        run_dir: where the records of the run are that it failed by; of two that differ the second, beside the first.
    """

    repeatable: bool | None
    final: Mapping[str, str]
    updates: Mapping[int, Mapping[int, Mapping[str, str]]]
    sample_ids: Mapping[int, Mapping[int, list[int] | None]]
    collectives: Mapping[int, Mapping[int, Mapping[str, Sequence[Sequence[Any]]]]] = field(default_factory=dict)
    magnitudes: tuple[tuple[str, int, float, float], ...] = ()
    starts: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    finals: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    epochs: Mapping[int, int | None] = field(default_factory=dict)
    phases: Mapping[str, Sequence[int]] = field(default_factory=dict)
    saves: Mapping[int, Sequence[int]] = field(default_factory=dict)
    foreign_saves: Mapping[int, Sequence[int]] = field(default_factory=dict)
    effects: tuple[Found, ...] = ()
    broken: tuple[str, ...] = ()
    reason: str = ""
    run_dir: str = ""


@dataclass(frozen=True)
class History:
    """All that is on record of one run.

    Attributes:
        events: by (t_ns, rank, seq), until the deadline if the run was ended then.
        stacks: (rank, restart) -> the stacks that this process wrote on a fatal signal or on demand, then, after a
            line ``SIGTERM_HEADER``, those it wrote when the launcher ended it.
        flights: (rank, restart) -> the flight record that this process left, if it did.
        damaged: one line for each record line that could not be read (a torn last line of a killed rank is normal
            and not listed).
        effects: what stood in each place of side effects that the plan names, after the end.
        reported: restart -> what rank 0 printed of its evaluations, in order, if the plan says how it looks.
    """

    plan: Plan
    outcome: Outcome
    events: tuple[Event, ...]
    stacks: Mapping[tuple[int, int], str] = field(default_factory=dict)
    flights: Mapping[tuple[int, int], Flight] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()
    effects: tuple[Found, ...] = ()
    reported: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def restarts(self) -> int:
        """The highest restart count that left a record; 0 if none did."""
        return max((e.restart for e in self.events), default=0)

    @cached_property
    def recorded(self) -> frozenset[int]:
        """The ranks that left a record."""
        return frozenset(rank for rank, _ in self._by_process)

    @cached_property
    def _by_process(self) -> dict[tuple[int, int], dict[str, list[Event]]]:
        grouped: dict[tuple[int, int], dict[str, list[Event]]] = {}
        for event in self.events:
            process = grouped.setdefault((event.rank, event.restart), {})
            process.setdefault(event.kind, []).append(event)
        return grouped

    @cached_property
    def _by_kind(self) -> dict[str, list[Event]]:
        grouped: dict[str, list[Event]] = {}
        for event in self.events:
            grouped.setdefault(event.kind, []).append(event)
        return grouped

    @property
    def ranks(self) -> range:
        return range(self.plan.ranks)

    def of(
        self, kind: Kind | Iterable[Kind] | None = None, *, rank: int | None = None, restart: int | None = None
    ) -> list[Event]:
        """Events of these kinds, of one rank and restart if given, in order of time."""
        kinds = None if kind is None else {kind} if isinstance(kind, str) else set(kind)
        if rank is not None:
            restarts = range(self.restarts + 1) if restart is None else [restart]
            groups = [self._by_process.get((rank, each), {}) for each in restarts]
        elif kinds is not None:
            groups = [self._by_kind]
        else:
            return [event for event in self.events if restart is None or event.restart == restart]
        found = [events for group in groups for name, events in group.items() if kinds is None or name in kinds]
        merged = list(found[0]) if len(found) == 1 else sorted(itertools.chain(*found), key=_order)
        if rank is None and restart is not None:
            return [event for event in merged if event.restart == restart]
        return merged


def _order(event: Event) -> tuple[int, int, int]:
    return event.t_ns, event.rank, event.seq


def load_history(run_dir: Path) -> History:
    """The history of the run in ``run_dir``.

    Raises:
        RecordError: there is no plan.json or outcome.json, or one of the files cannot be read.
    """
    plan = load_plan(run_dir)
    outcome = load_outcome(run_dir)
    events: list[Event] = []
    stacks: dict[tuple[int, int], str] = {}
    damaged: list[str] = []
    with _no_collection():
        for path, rank, restart in _of_processes(run_dir, "events-*.jsonl"):
            events.extend(_load_events(path, rank, restart, damaged))
        events.sort(key=_order)
    for path, rank, restart in _of_processes(run_dir, "stacks-*.txt"):
        if not path.is_file():
            continue
        ended = path.with_name(path.name.replace("stacks", "sigterm"))
        text = path.read_text(errors="replace")
        if ended.is_file() and (dump := ended.read_text(errors="replace")):
            text += f"{SIGTERM_HEADER}\n{dump}"
        if text:
            stacks[rank, restart] = text
    damaged.extend(_cut_off(plan, outcome, events))
    if outcome.timed_out:  # ranks that were stopped, or asleep, may go on when they are asked for their stacks
        events = [event for event in events if event.t_ns <= outcome.ended_ns]
    return History(
        plan,
        outcome,
        tuple(events),
        stacks,
        _flights(run_dir),
        tuple(damaged),
        load_effects(run_dir),
        _reported(plan, run_dir),
    )


@contextmanager
def _no_collection() -> Iterator[None]:
    """Nothing that is loaded is garbage: looking for some over and over takes as long as the loading itself."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _flights(run_dir: Path) -> dict[tuple[int, int], Flight]:
    found = {}
    for path, rank, restart in _of_processes(run_dir, "flight-*.json"):
        with suppress(*UNREADABLE):  # it is a second opinion: no check rests on it alone
            found[rank, restart] = load_flight(path)
    return found


def _reported(plan: Plan, run_dir: Path) -> dict[int, tuple[str, ...]]:
    """What rank 0 printed of its evaluations, on stdout or else on stderr, where loggers write."""
    found: dict[int, tuple[str, ...]] = {}
    for stream in ("stdout", "stderr") if plan.metric is not None else ():
        for path, rank, restart in _of_processes(run_dir, f"{stream}-*.txt"):
            if rank == 0 and path.is_file() and plan.metric is not None and not found.get(restart):
                found[restart] = tuple(re.findall(plan.metric.reported, path.read_text(errors="replace")))
    return found


def _cut_off(plan: Plan, outcome: Outcome, events: list[Event]) -> Iterator[str]:
    """Records that stop before the end of a run that ended well: a disk was full, or lines were lost since."""
    last = max((event.restart for event in events), default=0)
    if outcome.exit_code == 0:
        left = {event.rank for event in events if event.kind == Kind.EXIT and event.restart == last}
        for rank in sorted(set(range(plan.ranks)) - left):
            yield f"rank-{rank}/events-{last}.jsonl: the run ended well, but this record stops before its end"


def load_outcome(run_dir: Path) -> Outcome:
    """Read outcome.json.

    Raises:
        RecordError: it is missing or damaged.
    """
    path = run_dir / OUTCOME_JSON
    try:
        raw = json.loads(path.read_text())
        raw["agent_exits"] = tuple(AgentExit(**e) for e in raw["agent_exits"])
        raw["leftovers"] = tuple(raw["leftovers"])
        raw["asked"] = tuple(Asked(**a) for a in raw.get("asked", ()))
        outcome = Outcome(**raw)
        _check_types(outcome)
        return outcome
    except UNREADABLE as error:
        raise RecordError(f"{path}: no readable outcome of a run ({error}); was the run ended from outside?") from error


def _check_types(outcome: Outcome) -> None:
    numbers = [outcome.started_ns, outcome.ended_ns, *(n for e in outcome.agent_exits for n in (e.pid, e.local_rank))]
    numbers += [n for a in outcome.asked for n in (a.rank, a.restart, a.pid)]
    codes = [code for code in (outcome.exit_code, *(e.exit_code for e in outcome.agent_exits)) if code is not None]
    if not all(type(number) is int for number in (*numbers, *codes)):
        raise ValueError("a time, pid, rank or exit code is no whole number")
    flag: Any = outcome.timed_out
    if type(flag) is not bool or not all(isinstance(line, str) for line in outcome.leftovers):
        raise ValueError("timed_out is no boolean, or a leftover no string")


def _of_processes(run_dir: Path, pattern: str) -> Iterator[tuple[Path, int, int]]:
    """The files of this kind with their rank and restart; copies and whatever else has a like name are left out."""
    for path in sorted(run_dir.glob(f"rank-*/{pattern}")):
        if found := _OF_PROCESS.fullmatch(path.relative_to(run_dir).as_posix()):
            yield path, int(found[1]), int(next(number for number in found.groups()[1:] if number is not None))


def _load_events(path: Path, rank: int, restart: int, damaged: list[str]) -> Iterator[Event]:
    where = f"{path.parent.name}/{path.name}"
    try:
        lines = path.read_bytes().rstrip(b"\0").split(b"\n")  # zeros: room that a killed process left
    except OSError as error:
        damaged.append(f"{where}: cannot be read: {error.strerror}")
        return
    last = lines.pop()  # what follows the last newline: empty, or a line torn by the end of the process
    for seq, (line, raw) in enumerate(zip(lines, _parsed(lines), strict=True), start=1):
        try:
            yield _event(rank, restart, seq, json.loads(line) if raw is None else raw)
        except UNREADABLE as error:
            damaged.append(f"{where}:{seq}: {error!r}" if isinstance(error, KeyError) else f"{where}:{seq}: {error}")
    if last and not lines:
        damaged.append(f"{where}:1: the only line is torn")


def _parsed(lines: Sequence[bytes]) -> Sequence[Any]:
    """All lines parsed at once, which takes a third of the time; None for each if one of them is no JSON by itself."""
    try:
        text = [line.decode() for line in lines]
        found: list[Any] = json.loads(f"[{','.join(text)}]")
        if len(found) == len(lines) and all(isinstance(raw, dict) for raw in found):
            return found  # lines that are only together JSON would not give as many objects
    except UNREADABLE:
        pass
    return [None] * len(lines)


def _event(rank: int, restart: int, seq: int, raw: Any) -> Event:
    if not isinstance(raw, dict):
        raise TypeError(f"an event is an object, not {type(raw).__name__}")
    t_ns, kind, step, phase = raw.pop("t"), raw.pop("kind"), raw.pop("step"), raw.pop("phase")
    if not (type(t_ns) is int and type(kind) is str and type(step) is int and type(phase) is str):
        told = {"t": (t_ns, int), "kind": (kind, str), "step": (step, int), "phase": (phase, str)}
        name, (value, wanted) = next((name, pair) for name, pair in told.items() if type(pair[0]) is not pair[1])
        raise TypeError(f"{name} is no {wanted.__name__}, but {type(value).__name__}")
    return Event(rank, restart, seq, t_ns, sys.intern(kind), step, sys.intern(phase), raw)
