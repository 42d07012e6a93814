"""Load a run directory as a History: immutable, merged over ranks and restarts, ordered by time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.errors import RecordError
from harness.plan import Plan, load_plan
from harness.wire import OUTCOME_JSON, Event, Kind

SIGTERM_HEADER = "chaos: SIGTERM"


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
    """

    exit_code: int | None
    timed_out: bool
    started_ns: int
    ended_ns: int
    leftovers: tuple[str, ...] = ()
    agent_exits: tuple[AgentExit, ...] = ()

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
        updates: per rank, per step: the digests of the state after that update (``params optimizer buffers``, and
            ``rng`` if the random generators repeat themselves from run to run).
        sample_ids: per rank, per step: the sample ids of that update, None if unknown.
        collectives: per rank, per step: how many collectives it sent in each phase.
        magnitudes: of rank 0's final parameters: (name, number of elements, sum, L2 norm).
        reason: why there is nothing to compare with, if so.
    """

    repeatable: bool | None
    final: Mapping[str, str]
    updates: Mapping[int, Mapping[int, Mapping[str, str]]]
    sample_ids: Mapping[int, Mapping[int, list[int] | None]]
    collectives: Mapping[int, Mapping[int, Mapping[str, int]]] = field(default_factory=dict)
    magnitudes: tuple[tuple[str, int, float, float], ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class History:
    """All that is on record of one run.

    Attributes:
        events: by (t_ns, rank, seq).
        stacks: (rank, restart) -> the stacks that this process wrote on a fatal signal or on demand, then, after a
            line ``SIGTERM_HEADER``, those it wrote when the launcher ended it.
        damaged: one line for each record line that could not be read (a torn last line of a killed rank is normal
            and not listed).
    """

    plan: Plan
    outcome: Outcome
    events: tuple[Event, ...]
    stacks: Mapping[tuple[int, int], str] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()

    @cached_property
    def restarts(self) -> int:
        """The highest restart count that left a record; 0 if none did."""
        return max((e.restart for e in self.events), default=0)

    @cached_property
    def _by_process(self) -> dict[tuple[int, int], tuple[Event, ...]]:
        grouped: dict[tuple[int, int], list[Event]] = {}
        for event in self.events:
            grouped.setdefault((event.rank, event.restart), []).append(event)
        return {key: tuple(events) for key, events in grouped.items()}

    @cached_property
    def _by_kind(self) -> dict[str, tuple[Event, ...]]:
        grouped: dict[str, list[Event]] = {}
        for event in self.events:
            grouped.setdefault(event.kind, []).append(event)
        return {kind: tuple(events) for kind, events in grouped.items()}

    @property
    def ranks(self) -> range:
        return range(self.plan.ranks)

    def of(
        self, kind: Kind | Iterable[Kind] | None = None, *, rank: int | None = None, restart: int | None = None
    ) -> list[Event]:
        """Events of these kinds, of one rank and restart if given, in order of time."""
        kinds = None if kind is None else {kind} if isinstance(kind, str) else set(kind)
        if rank is not None and restart is not None:
            events: Iterable[Event] = self._by_process.get((rank, restart), ())
        elif kinds is not None and len(kinds) == 1:
            events = self._by_kind.get(next(iter(kinds)), ())
        else:
            events = self.events
        return [
            e
            for e in events
            if (kinds is None or e.kind in kinds)
            and (rank is None or e.rank == rank)
            and (restart is None or e.restart == restart)
        ]


def load_history(run_dir: Path) -> History:
    """The history of the run in ``run_dir``.

    Raises:
        RecordError: there is no plan.json or outcome.json, or one of them cannot be read.
    """
    plan = load_plan(run_dir)
    outcome = load_outcome(run_dir)
    events: list[Event] = []
    stacks: dict[tuple[int, int], str] = {}
    damaged: list[str] = []
    for path in sorted(run_dir.glob("rank-*/events-*.jsonl")):
        events.extend(_load_events(path, damaged))
    for path in run_dir.glob("rank-*/stacks-*.txt"):
        ended = path.with_name(path.name.replace("stacks", "sigterm"))
        text = path.read_text(errors="replace")
        if ended.exists() and (dump := ended.read_text(errors="replace")):
            text += f"{SIGTERM_HEADER}\n{dump}"
        if text:
            stacks[_process_of(path)] = text
    events.sort(key=lambda e: (e.t_ns, e.rank, e.seq))
    return History(plan, outcome, tuple(events), stacks, tuple(damaged))


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
        return Outcome(**raw)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RecordError(f"{path}: no readable outcome of a run ({error}); was the run ended from outside?") from error


def _process_of(path: Path) -> tuple[int, int]:
    return int(path.parent.name.removeprefix("rank-")), int(path.stem.rpartition("-")[2])


def _load_events(path: Path, damaged: list[str]) -> Iterable[Event]:
    rank, restart = _process_of(path)
    lines = path.read_bytes().split(b"\n")
    last = lines.pop()  # what follows the last newline: empty, or a line torn by the end of the process
    for seq, line in enumerate(lines, start=1):
        try:
            raw: dict[str, Any] = json.loads(line)
            yield Event(rank, restart, seq, raw.pop("t"), raw.pop("kind"), raw.pop("step"), raw.pop("phase"), raw)
        except (ValueError, KeyError, AttributeError) as error:
            damaged.append(f"{path.parent.name}/{path.name}:{seq}: {error}")
    if last and not lines:
        damaged.append(f"{path.parent.name}/{path.name}:1: the only line is torn")
