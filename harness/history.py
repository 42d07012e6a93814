"""Load a run directory as a History: immutable, merged over ranks and restarts, ordered by time."""

from __future__ import annotations

import gc
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.effects import Found, load_effects
from harness.errors import RecordError
from harness.event_files import OF_EVERY_UPDATE, UNREADABLE, EventFiles, of_processes, read_processes, size_bytes
from harness.events import Place, Process, T, Views, order
from harness.evidence import Asked, Flight, load_flight
from harness.plan import Plan, load_plan
from harness.remains import Remains, load_remains
from harness.wire import OUTCOME_JSON, Event, Kind

SIGTERM_HEADER = "chaos: SIGTERM"
# A record beyond this is read piece by piece: parsed as a whole it would fill six times as much memory.
LARGE_BYTES = 32_000_000


@dataclass(frozen=True, kw_only=True)
class AgentExit:
    """How torchrun's agent saw a rank end: from its own log, so None where it did not say.

    Attributes:
        exit_code: negative for a signal, as in subprocess.
        order: when it was seen; of those that were found dead at once it is the same.
        t_ns: the same by the clock of the events; None if it did not say, as torchrun itself does not.
    """

    pid: int
    local_rank: int
    exit_code: int
    order: int = 0
    t_ns: int | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the launcher saw of the whole run (outcome.json).

    Attributes:
        exit_code: of the agent; negative for a signal; None if it had to be killed on the deadline.
        timed_out: the scenario's deadline passed and the run was ended by force.
        leftovers: one line each for what was still there after the end: process, port, shared memory, open file.
        agent_exits: ranks that the agent reported as failed by themselves, in the order it did.
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
        updates: per rank, per step: the digests of the state after that update (``params buffers``, and ``optimizer``
            if its state repeats itself from run to run; of each of ``wire.GENERATORS`` if that does, and each
            update draws from it), and as text ``lr`` and ``scaler``.
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
        events: by (t_ns, rank, seq), until the deadline if the run was ended then. Of a record that is large those of
            kinds that come with every update are left out: ask ``of``, ``each`` and ``count``.
        stacks: (rank, restart) -> the stacks that this process wrote on a fatal signal or on demand, then, after a
            line ``SIGTERM_HEADER``, those it wrote when the launcher ended it.
        flights: (rank, restart) -> the flight record that this process left, if it did.
        damaged: one line for each record line that could not be read (a torn last line of a killed rank is normal
            and not listed).
        effects: what stood in each place of side effects that the plan names, after the end.
        remains: what was in each directory of checkpoints after the end, where nobody had looked since the first save.
        reported: restart -> what rank 0 printed of its evaluations, in order, if the plan says how it looks.
        files: all events of a large record; None if ``events`` has them all.
    """

    plan: Plan
    outcome: Outcome
    events: tuple[Event, ...]
    stacks: Mapping[tuple[int, int], str] = field(default_factory=dict)
    flights: Mapping[tuple[int, int], Flight] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()
    effects: tuple[Found, ...] = ()
    remains: Remains = field(default_factory=dict)
    reported: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    files: EventFiles | None = None

    @cached_property
    def restarts(self) -> int:
        """The highest restart count that left a record; 0 if none did."""
        return max((restart for _, restart in self.places), default=0)

    @cached_property
    def recorded(self) -> frozenset[int]:
        """The ranks that left a record."""
        return frozenset(rank for rank, _ in self.places)

    @cached_property
    def last_ns(self) -> int | None:
        """When the last event was recorded; None if none was."""
        if self.files is not None:
            return self.files.last_ns
        return self.events[-1].t_ns if self.events else None

    @property
    def places(self) -> Sequence[Place]:
        """Rank and restart of each process that left a record."""
        return [*self._processes] if self.files is None else self.files.places

    @property
    def ranks(self) -> range:
        return range(self.plan.ranks)

    @cached_property
    def _processes(self) -> dict[Place, Process]:
        grouped: dict[Place, list[Event]] = {}
        for event in self.events:
            grouped.setdefault((event.rank, event.restart), []).append(event)
        return {place: Process(*place, events) for place, events in grouped.items()}

    @cached_property
    def _by_kind(self) -> dict[str, list[Event]]:
        grouped: dict[str, list[Event]] = {}
        for event in self.events:
            grouped.setdefault(event.kind, []).append(event)
        return grouped

    @cached_property
    def _views(self) -> dict[Callable[[Process], Any], Mapping[Place, Any]]:
        return {}

    def process(self, rank: int, restart: int) -> Process:
        """All that one process recorded: no event if it left no record."""
        if self.files is not None:
            return self.files.process(rank, restart)
        return self._processes.get((rank, restart)) or Process(rank, restart, ())

    def each(self, view: Callable[[Process], T]) -> Mapping[Place, T]:
        """Of each process that left a record what a view (``harness.events.view``) makes of it."""
        if view not in self._views:
            self._views[view] = self._made(view) if self.files is None else self.files.each(view)
        return self._views[view]

    def _made(self, view: Callable[[Process], T]) -> Mapping[Place, T]:
        views = Views([view])
        for process in self._processes.values():
            views.add(process)
        return views.of(view) or {}

    def line(self, rank: int, restart: int, seq: int) -> Event:
        """The event of this line; there must be one."""
        return next(event for event in self.process(rank, restart).events if event.seq == seq)

    def count(self, *kinds: Kind) -> int:
        """How many events of these kinds are on record."""
        if self.files is not None:
            return sum(self.files.counts[kind] for kind in kinds)
        return sum(len(self._by_kind.get(kind, ())) for kind in kinds)

    def of(
        self,
        kind: Kind | Iterable[Kind] | None = None,
        *,
        rank: int | None = None,
        restart: int | None = None,
        step: int | None = None,
    ) -> list[Event]:
        """Events of these kinds, of one rank, restart and step if given, in order of time.

        Of a large record those of every update are read again: of one rank or one step they are few.
        """
        kinds = () if kind is None else (kind,) if isinstance(kind, str) else tuple(kind)
        if self.files is not None and (not kinds or not OF_EVERY_UPDATE.isdisjoint(kinds)):
            return self.files.of(kinds, rank, restart, step)
        if rank is not None:
            restarts = range(self.restarts + 1) if restart is None else [restart]
            processes = (self._processes.get((rank, each)) for each in restarts)
            found = [process.of(*kinds) for process in processes if process is not None]
        else:
            found = [self._by_kind.get(each, []) for each in dict.fromkeys(kinds)] if kinds else [[*self.events]]
        merged = list(found[0]) if len(found) == 1 else sorted(itertools.chain(*found), key=order)
        if rank is None and restart is not None:
            merged = [event for event in merged if event.restart == restart]
        return merged if step is None else [event for event in merged if event.step == step]


def load_history(run_dir: Path) -> History:
    """The history of the run in ``run_dir``.

    Raises:
        RecordError: there is no plan.json or outcome.json, or one of the files cannot be read.
    """
    plan = load_plan(run_dir)
    outcome = load_outcome(run_dir)
    until_ns = outcome.ended_ns if outcome.timed_out else None
    stacks: dict[Place, str] = {}
    damaged: list[str] = []
    files = None
    with _no_collection():
        if size_bytes(run_dir) > LARGE_BYTES:
            files = EventFiles(run_dir, until_ns)
            events = files.kept
            damaged.extend(files.damaged)
            damaged.extend(_cut_off(plan, outcome, files.exits, files.last_restart))
        else:
            processes = [*read_processes(run_dir, damaged)]
            exits = {(p.rank, p.restart) for p in processes if Kind.EXIT in p.by_kind}
            damaged.extend(_cut_off(plan, outcome, exits, max((p.restart for p in processes if p.events), default=0)))
            events = tuple(sorted(itertools.chain(*(process.events for process in processes)), key=order))
    if files is None and until_ns is not None:
        # Ranks that were stopped, or asleep, may go on when they are asked for their stacks.
        events = tuple(event for event in events if event.t_ns <= until_ns)
    for path, rank, restart in of_processes(run_dir, "stacks-*.txt"):
        if not path.is_file():
            continue
        ended = path.with_name(path.name.replace("stacks", "sigterm"))
        text = path.read_text(errors="replace")
        if ended.is_file() and (dump := ended.read_text(errors="replace")):
            text += f"{SIGTERM_HEADER}\n{dump}"
        if text:
            stacks[rank, restart] = text
    return History(
        plan,
        outcome,
        events,
        stacks,
        _flights(run_dir),
        tuple(damaged),
        load_effects(run_dir),
        load_remains(run_dir),
        _reported(plan, run_dir),
        files,
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
    for path, rank, restart in of_processes(run_dir, "flight-*.json"):
        with suppress(*UNREADABLE):  # it is a second opinion: no check rests on it alone
            found[rank, restart] = load_flight(path)
    return found


def _reported(plan: Plan, run_dir: Path) -> dict[int, tuple[str, ...]]:
    """What rank 0 printed of its evaluations, on stdout or else on stderr, where loggers write."""
    found: dict[int, tuple[str, ...]] = {}
    for stream in ("stdout", "stderr") if plan.metric is not None else ():
        for path, rank, restart in of_processes(run_dir, f"{stream}-*.txt"):
            if rank == 0 and path.is_file() and plan.metric is not None and not found.get(restart):
                found[restart] = tuple(re.findall(plan.metric.reported, path.read_text(errors="replace")))
    return found


def _cut_off(plan: Plan, outcome: Outcome, exits: set[Place], last: int) -> Iterator[str]:
    """Records that stop before the end of a run that ended well: a disk was full, or lines were lost since."""
    if outcome.exit_code == 0:
        for rank in sorted(set(range(plan.ranks)) - {rank for rank, restart in exits if restart == last}):
            yield f"rank-{rank}/events-{last}.jsonl: the run ended well, but this record stops before its end"


def load_outcome(run_dir: Path) -> Outcome:
    """Read outcome.json.

    Raises:
        RecordError: it is missing or damaged.
    """
    path = run_dir / OUTCOME_JSON
    try:
        raw = json.loads(path.read_text())
        raw["agent_exits"] = tuple(AgentExit(**{"order": i} | e) for i, e in enumerate(raw["agent_exits"]))
        raw["leftovers"] = tuple(raw["leftovers"])
        raw["asked"] = tuple(Asked(**a) for a in raw.get("asked", ()))
        outcome = Outcome(**raw)
        _check_types(outcome)
        return outcome
    except UNREADABLE as error:
        raise RecordError(f"{path}: no readable outcome of a run ({error}); was the run ended from outside?") from error


def _check_types(outcome: Outcome) -> None:
    numbers = [
        outcome.started_ns,
        outcome.ended_ns,
        *(n for e in outcome.agent_exits for n in (e.pid, e.local_rank, e.order)),
        *(e.t_ns for e in outcome.agent_exits if e.t_ns is not None),
    ]
    numbers += [n for a in outcome.asked for n in (a.rank, a.restart, a.pid)]
    codes = [code for code in (outcome.exit_code, *(e.exit_code for e in outcome.agent_exits)) if code is not None]
    if not all(type(number) is int for number in (*numbers, *codes)):
        raise ValueError("a time, pid, rank or exit code is no whole number")
    flag: Any = outcome.timed_out
    if type(flag) is not bool or not all(isinstance(line, str) for line in outcome.leftovers):
        raise ValueError("timed_out is no boolean, or a leftover no string")
