"""A run over real time: what each process did, and the moments a reader wants to jump to.

All times are seconds since the run was started (``outcome.started_ns``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from harness.checks.ends import End, ends_of
from harness.checks.records import failed_restarts, saved_step, start_step
from harness.history import History
from harness.report.stored import StoredJudgement
from harness.report.words import one_line, ranges, signal_name
from harness.wire import PHASES, Event, Kind

Mark = tuple[float, str, int]  # when, what (a phase entered, ``collective`` sent, ``update`` done), in which step
MomentKind = Literal["launch", "fault", "error", "end", "load", "save", "deviation", "recovered", "done"]


@dataclass(frozen=True, kw_only=True)
class Process:
    """One rank of one launch.

    Attributes:
        begin_s, end_s: from its first record to its last, or to when it was ended.
        steps: first and last update it did; None if none.
        replayed: first and last update of those that an earlier launch had done before; None if none.
        ended: how, in words; empty for a normal end.
        marks: in order of time.
    """

    rank: int
    restart: int
    begin_s: float
    end_s: float
    steps: tuple[int, int] | None
    replayed: tuple[int, int] | None
    ended: str
    num_collectives: int
    marks: tuple[Mark, ...]


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Something that happened at an instant.

    Attributes:
        rank: None if it is about all ranks.
        where: the line to open, relative to the run directory; empty if there is none.
    """

    at_s: float
    kind: MomentKind
    text: str
    rank: int | None = None
    restart: int | None = None
    where: str = ""


@dataclass(frozen=True, kw_only=True)
class Band:
    """A stretch of time during which a fault was felt: from its firing to the first new update, or to the end."""

    begin_s: float
    end_s: float
    ranks: tuple[int, ...]
    text: str
    is_recovered: bool


@dataclass(frozen=True, kw_only=True)
class Save:
    """One checkpoint being saved, by all ranks together; ``end_s`` is None if no rank came to the end of it."""

    step: int
    restart: int
    begin_s: float
    end_s: float | None
    path: str


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """See the module's docstring; ``processes`` by rank, then by launch; ``moments`` and ``saves`` by time."""

    num_ranks: int
    duration_s: float
    processes: tuple[Process, ...]
    moments: tuple[Moment, ...]
    bands: tuple[Band, ...]
    saves: tuple[Save, ...]


def make_timeline(history: History, judged: StoredJudgement) -> Timeline:
    """The timeline of a run and of what was found in it."""
    clock = _Clock(history)
    ends = {restart: ends_of(history, restart) for restart in range(history.restarts + 1)}
    processes = tuple(_processes(history, clock, ends))
    recovered = tuple(_recovered(history))
    saves = tuple(sorted(_saves(history, clock), key=lambda save: save.begin_s))
    moments = [
        *_launches(history, clock),
        *_faults(history, clock),
        *_errors(history, clock),
        *_silent_ends(history, clock, ends),
        *_loads(history, clock),
        *_first_deviation(history, clock, judged),
        *(_recovery(event, clock) for event in recovered),
        _done(history, clock),
    ]
    return Timeline(
        num_ranks=history.plan.ranks,
        duration_s=clock.end_s,
        processes=processes,
        moments=tuple(sorted(moments, key=lambda moment: moment.at_s)),
        bands=tuple(_bands(history, clock, recovered)),
        saves=saves,
    )


class _Clock:
    def __init__(self, history: History) -> None:
        self._zero_ns = history.outcome.started_ns
        last_ns = self._zero_ns if history.last_ns is None else history.last_ns
        self.end_s = self.of(max(history.outcome.ended_ns, last_ns))

    def of(self, t_ns: int) -> float:
        return (t_ns - self._zero_ns) / 1e9


# -- processes -----------------------------------------------------------------------------------------------------


def _processes(history: History, clock: _Clock, ends: dict[int, dict[int, End]]) -> Iterator[Process]:
    begins: dict[int, int] = {}
    for event in history.of(Kind.START):
        begins.setdefault(event.restart, event.t_ns)
    for rank in history.ranks:
        reached = 0
        for restart in range(history.restarts + 1):
            events = history.of(rank=rank, restart=restart)
            if not events:
                continue
            steps = [event.step for event in events if event.kind == Kind.UPDATE]
            again = [step for step in steps if step <= reached]
            end = ends[restart][rank]
            end_s = clock.of(events[-1].t_ns)
            if end.way == "ended":  # it stood there, silent, until the launcher ended it
                end_s = max(end_s, clock.of(begins[restart + 1]) if restart + 1 in begins else clock.end_s)
            yield Process(
                rank=rank,
                restart=restart,
                begin_s=clock.of(events[0].t_ns),
                end_s=end_s,
                steps=(steps[0], steps[-1]) if steps else None,
                replayed=(again[0], again[-1]) if again else None,
                ended=_how_ended(end),
                num_collectives=sum(event.kind == Kind.COLLECTIVE for event in events),
                marks=tuple(_marks(events, clock)),
            )
            reached = max([reached, *steps])


def _marks(events: Iterable[Event], clock: _Clock) -> Iterator[Mark]:
    """A phase begins with the first event that is tagged with it."""
    phase = None
    for event in events:
        if event.phase != phase and event.phase in PHASES:
            phase = event.phase
            yield clock.of(event.t_ns), phase, event.step
        if event.kind == Kind.COLLECTIVE:
            yield clock.of(event.t_ns), "collective", event.step
        elif event.kind == Kind.UPDATE:
            yield clock.of(event.t_ns), "update", event.step


def _how_ended(end: End) -> str:
    name = end.signal or (signal_name(end.code) if end.code is not None and end.code < 0 else "")
    match end.way:
        case "exit" if not end.code:
            return ""
        case "exit":
            return f"exit code {end.code}"
        case "exception":
            return str(end.word.data["type"]) if end.word is not None else "exception"
        case "vanished" if end.code == 0:
            return ""
        case "vanished":
            return name or "no last word"
        case _:
            return name or end.way


# -- moments -------------------------------------------------------------------------------------------------------


def _launches(history: History, clock: _Clock) -> Iterator[Moment]:
    for restart in range(history.restarts + 1):
        starts = [event for event in history.of(Kind.START) if event.restart == restart]
        if starts:
            count = f"{len(starts)} rank{'s' * (len(starts) > 1)}"
            name = f"restart {restart}" if restart else "launch"
            yield Moment(at_s=clock.of(starts[0].t_ns), kind="launch", text=f"{name}: {count} started", restart=restart)


def _faults(history: History, clock: _Clock) -> Iterator[Moment]:
    for event in history.of(Kind.FAULT):
        yield Moment(
            at_s=clock.of(event.t_ns),
            kind="fault",
            text=f"fault {event.data.get('fault')} fires on rank {event.rank} {event.data.get('effect', '')}".rstrip(),
            rank=event.rank,
            restart=event.restart,
            where=event.where,
        )


def _errors(history: History, clock: _Clock) -> Iterator[Moment]:
    """Exceptions, one moment for all ranks of a launch that raised the same type; and saves and loads that failed."""
    groups: dict[tuple[Any, ...], list[Event]] = {}
    for event in history.of(Kind.EXCEPTION):
        groups.setdefault((event.restart, event.data.get("type"), bool(event.data.get("in_collective"))), []).append(
            event
        )
    for event in history.of((Kind.SAVE_ERROR, Kind.LOAD_ERROR)):
        what = "save failed" if event.kind == Kind.SAVE_ERROR else "load failed"
        groups.setdefault((event.restart, what, False), []).append(event)
    for (restart, kind, in_collective), events in groups.items():
        first = events[0]
        place = " in a collective" if in_collective else ""
        said = one_line(first.data.get("message", first.data.get("error", "")))
        yield Moment(
            at_s=clock.of(first.t_ns),
            kind="error",
            text=f"{ranges(e.rank for e in events)}: {kind}{place}, step {first.step}, {first.phase}: {said}",
            rank=first.rank,
            restart=restart,
            where=first.where,
        )


def _silent_ends(history: History, clock: _Clock, ends: dict[int, dict[int, End]]) -> Iterator[Moment]:
    """Processes that ended without a word of their own."""
    for restart in failed_restarts(history):
        for rank, end in ends[restart].items():
            if end.way in ("signal", "vanished") and end.last is not None:
                seen = f"is last seen in {end.last.phase} of step {end.last.step}"
                yield Moment(
                    at_s=clock.of(end.last.t_ns),
                    kind="end",
                    text=f"rank {rank} {'ends there' if end.last.kind == Kind.FAULT else seen}: {_how_ended(end)}",
                    rank=rank,
                    restart=restart,
                    where=end.last.where,
                )


def _loads(history: History, clock: _Clock) -> Iterator[Moment]:
    groups: dict[tuple[int, Any], list[Event]] = {}
    for event in history.of(Kind.LOAD):
        groups.setdefault((event.restart, event.data.get("loaded_step")), []).append(event)
    for (restart, step), events in groups.items():
        if step is None and restart == 0:
            continue  # a first launch finds nothing
        what = "find no checkpoint and begin anew" if step is None else f"resume from the checkpoint of step {step}"
        yield Moment(
            at_s=clock.of(events[-1].t_ns),
            kind="load",
            text=f"{ranges(event.rank for event in events)} {what}",
            restart=restart,
            where=events[0].where,
        )


def _first_deviation(history: History, clock: _Clock, judged: StoredJudgement) -> Iterator[Moment]:
    """The line that the first broken guarantee points to; where none is broken, that of the first cause."""
    broken = {v.file: v for v in reversed(judged.verdicts) if v.outcome == "invalid" and v.file}
    event = next((event for event in history.of() if event.where in broken), None) if broken else None
    if event is not None:
        verdict = broken[event.where]
        rank = (
            event.rank if verdict.rank is None else verdict.rank
        )  # its line may be another rank's, that waited for it
        step = event.step if verdict.step is None else verdict.step
        said = f"{verdict.guarantee}: {verdict.reason}"
    elif (cause := next((cause for cause in judged.diagnosis if cause.event is not None), None)) is not None:
        event, said = cause.event, cause.detail
        assert event is not None, "it was looked for"
        rank, step = event.rank, event.step
    if event is not None and event.kind != Kind.FAULT:  # a fault has a moment of its own
        yield Moment(
            at_s=clock.of(event.t_ns),
            kind="deviation",
            text=f"first deviation, rank {rank}, step {step}: {one_line(said)}",
            rank=rank,
            restart=event.restart,
            where=event.where,
        )


def _recovered(history: History) -> Iterator[Event]:
    """Of each restart the first update that no launch before had done."""
    reached = 0
    for restart in range(history.restarts + 1):
        updates = [event for event in history.of(Kind.UPDATE) if event.restart == restart]
        new = next((event for event in updates if event.step > reached), None)
        if restart and new is not None:
            yield new
        reached = max([reached, *(event.step for event in updates)])


def _recovery(event: Event, clock: _Clock) -> Moment:
    return Moment(
        at_s=clock.of(event.t_ns),
        kind="recovered",
        text=f"first new update: step {event.step}",
        rank=event.rank,
        restart=event.restart,
        where=event.where,
    )


def _done(history: History, clock: _Clock) -> Moment:
    outcome = history.outcome
    code = outcome.exit_code
    if outcome.timed_out:
        text = f"ended by force on the deadline of {history.plan.deadline_s:g} s"
    elif code is not None and code < 0:
        text = f"the launcher was ended by {signal_name(code)}"
    else:
        text = f"the job ended with exit code {code}"
    return Moment(at_s=clock.end_s, kind="done", text=text)


def _bands(history: History, clock: _Clock, recovered: tuple[Event, ...]) -> Iterator[Band]:
    fired: dict[tuple[Any, int], list[Event]] = {}
    for event in history.of(Kind.FAULT):
        fired.setdefault((event.data.get("index"), event.restart), []).append(event)
    for (_, restart), events in fired.items():
        new = next((event for event in recovered if event.restart > restart), None)
        yield Band(
            begin_s=clock.of(events[0].t_ns),
            end_s=clock.end_s if new is None else clock.of(new.t_ns),
            ranks=tuple(sorted({event.rank for event in events})),
            text=str(events[0].data.get("fault")),
            is_recovered=new is not None,
        )


def _saves(history: History, clock: _Clock) -> Iterator[Save]:
    begun: dict[tuple[int, str, int], list[Event]] = {}
    done: dict[tuple[int, str, int], list[Event]] = {}
    for event in history.of((Kind.SAVE_START, Kind.SAVE_END)):
        into = begun if event.kind == Kind.SAVE_START else done
        into.setdefault((event.restart, str(event.data.get("path")), saved_step(event)), []).append(event)
    for key, events in begun.items():
        restart, path, step = key
        yield Save(
            step=step,
            restart=restart,
            begin_s=clock.of(events[0].t_ns),
            end_s=clock.of(done[key][-1].t_ns) if key in done else None,
            path=path,
        )


def resumed_step(history: History, restart: int) -> int | None:
    """The step that this launch went on from, where the records tell."""
    found = (start_step(history, rank, restart) for rank in history.ranks)
    return next((start[0] for start in found if start is not None), None)
