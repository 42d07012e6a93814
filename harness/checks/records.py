"""Questions that several checks ask of a history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePath

from harness.checkpoint.format import step_of
from harness.history import History
from harness.wire import Event, Kind

Updates = Mapping[tuple[int, int], Mapping[int, Event]]


def by_rank(events: Iterable[Event]) -> list[Event]:
    """In order of launch, then of rank: where several ranks tell the same, which came first in time is chance."""
    return sorted(events, key=lambda event: (event.restart, event.rank, event.seq))


def ended_well(history: History) -> bool:
    return history.outcome.exit_code == 0 and not history.outcome.timed_out


def failed_restarts(history: History) -> list[int]:
    """Restart counts of the launches that came to a bad end: all but the last, and the last if the run failed."""
    return list(range(history.restarts + (not ended_well(history))))


def exits(history: History, restart: int) -> dict[int, Event]:
    """Per rank the event of its leaving by itself, if it did."""
    return {e.rank: e for e in history.of(Kind.EXIT) if e.restart == restart}


def updates(history: History) -> dict[tuple[int, int], dict[int, Event]]:
    """(rank, restart) -> step -> the update; steps in the order in which they were done, a repeated one once."""
    found: dict[tuple[int, int], dict[int, Event]] = {}
    for event in history.of(Kind.UPDATE):
        found.setdefault((event.rank, event.restart), {}).setdefault(event.step, event)
    return found


def surviving(done: Updates) -> dict[int, dict[int, Event]]:
    """Rank -> step -> the update that counts: that of the highest restart which did this step; steps ascending."""
    line: dict[int, dict[int, Event]] = {}
    for (rank, _), steps in sorted(done.items()):
        line.setdefault(rank, {}).update(steps)
    return {rank: dict(sorted(steps.items())) for rank, steps in line.items()}


def each(values: Mapping[str, object], form: str, none: str = "nothing") -> str:
    """What each rank has, in words: ``rank 0 step 10, rank 1 nothing``; ``form``: of a value that is not None."""
    return ", ".join(f"{who} {none if value is None else form.format(value)}" for who, value in values.items())


def load_of(history: History, rank: int, restart: int) -> Event | None:
    """What this process was given to start from: its last load before its first update."""
    found = None
    for event in history.of((Kind.LOAD, Kind.UPDATE), rank=rank, restart=restart):
        if event.kind == Kind.UPDATE:
            break
        found = event
    return found


def state_of(history: History, rank: int, restart: int) -> Event | None:
    """The state of this process before its first update."""
    return next(iter(history.of(Kind.STATE, rank=rank, restart=restart)), None)


def start_step(history: History, rank: int, restart: int) -> tuple[int, Event] | None:
    """The step that this process started from, and the event that says so; None if nothing does.

    The store's word comes first; a script without a store is placed by the state it came back with.
    """
    if (load := load_of(history, rank, restart)) is not None:
        return load.data["loaded_step"] or 0, load
    state = state_of(history, rank, restart)
    if state is not None and not _is_unplaced(history, state):
        return state.step, state
    return None


def began_at_zero(history: History, rank: int, restart: int) -> bool:
    """Whether this process began with the first update; of one that did not say, whether it was launched to.

    After a crash before the first save a restart begins like the first launch.
    """
    if (first := next(iter(history.of(Kind.UPDATE, rank=rank, restart=restart)), None)) is not None:
        return first.step == 1
    if (start := start_step(history, rank, restart)) is not None:
        return start[0] == 0
    return restart == 0 and history.plan.start_from is None


def unplaced(history: History) -> Event | None:
    """The first state that a job which began with ``start_from`` went on from, and that is of no known step.

    The steps of that process are counted from 0 then, and mean nothing.
    """
    return next((e for e in by_rank(history.of(Kind.STATE)) if _is_unplaced(history, e)), None)


def begun(history: History) -> int:
    """How many updates an earlier run had made of all that count, where the job began with what that left."""
    if history.plan.start_from is None:
        return 0
    places = [(rank, restart) for restart in range(history.restarts + 1) for rank in history.ranks]
    steps = [started[0] for place in places if (started := start_step(history, *place)) is not None]
    return min(steps, default=0)


def _is_unplaced(history: History, state: Event) -> bool:
    told = (state.data.get("matched_step"), state.data.get("claimed_step"))
    return history.plan.start_from is not None and told == (None, None)


def saved_step(event: Event) -> int:
    """The step that a save is named after; the step it was made at, if the name says none."""
    named = step_of(PurePath(str(event.data.get("path"))).name)
    return event.step if named is None else named


def listed(ranks: Iterable[int]) -> str:
    """Ranks as words: ``rank 1``, ``ranks 0, 2``."""
    numbers = sorted(ranks)
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
