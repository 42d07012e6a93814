"""What the fault-free run says each rank owed: who parted, where the ranks' own comparison names nobody."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from harness.checks.ends import ends_of
from harness.checks.records import began_at_zero, failed_restarts
from harness.checks.sent import BEFORE_UPDATE, POINT_TO_POINT, UNEVEN, canonical, is_in_step
from harness.history import Baseline, History
from harness.wire import PHASES, Event, Kind


@dataclass(frozen=True)
class Due:
    """A collective of the fault-free run: place, name, and what has to be equal."""

    step: int
    phase: str
    op: str
    what: tuple[Hashable, ...]


@dataclass(frozen=True, kw_only=True)
class Owed:
    """Where a rank first leaves the fault-free run's order.

    Attributes:
        due: what should have been sent there; None if nothing more was.
        sent: what was; None if the rank went past it and sent nothing.
        at: the record to open: that, or the last one before; None if the rank sent nothing.
    """

    rank: int
    how: Literal["skipped", "extra", "mismatch"]
    due: Due | None
    sent: Event | None
    at: Event | None

    @property
    def place(self) -> Due:
        """Of the collective that was left out, put in, or is another."""
        place = _as_due(self.sent) if self.sent is not None and self.how != "skipped" else self.due
        assert place is not None, "what was left out was due, all else was sent"
        return place

    @property
    def operation(self) -> str:
        if self.how == "mismatch" and self.due is not None and canonical(self.due.op) != canonical(self.place.op):
            return f"{self.place.op} against {self.due.op}"
        return self.place.op


def unlike_due(history: History, restart: int, baseline: Baseline | None) -> Owed | None:
    """The one rank that parted from the fault-free run while all others kept to it, as far as each came.

    Only of a launch from zero, and only if it failed: a resumed one sends other collectives. Ranks that all leave that
    run's order do something else together; nobody is named for it.
    """
    if baseline is None or not baseline.repeatable or restart not in failed_restarts(history):
        return None
    if not all(began_at_zero(history, rank, restart) for rank in history.ranks):
        return None
    due = {rank: _due(baseline, rank) for rank in history.ranks}
    orders = [[d.what for d in line] for line in due.values()]
    if not orders or not orders[0] or any(order != orders[0] for order in orders):
        return None
    ended_ns = _ended_ns(history, restart, due)
    parted = []
    for rank in history.ranks:
        # With a dead peer nothing can be kept to any more: a survivor's clean-up is no news.
        until_ns = min((t_ns for other, t_ns in ended_ns.items() if other != rank), default=None)
        done = [
            e
            for e in history.of((Kind.COLLECTIVE, Kind.UPDATE), rank=rank, restart=restart)
            if until_ns is None or e.t_ns <= until_ns
        ]
        if (owed := _first_unlike(done, rank, due[rank])) is not None:
            parted.append(owed)
    return parted[0] if len(parted) == 1 and len(history.ranks) > 1 else None


def _ended_ns(history: History, restart: int, due: Mapping[int, Sequence[Due]]) -> dict[int, int]:
    """Rank -> when it came to an end of its own before its work was done, at the earliest.

    What the launcher ended is a consequence; so is a process that aborted inside a collective.
    """
    found = {}
    for rank, end in ends_of(history, restart).items():
        sent = [e for e in history.of(Kind.COLLECTIVE, rank=rank, restart=restart) if is_in_step(e)]
        is_done = end.way == "exit" and end.code == 0 and len(sent) >= len(due[rank])
        is_aborted = end.signal == "SIGABRT" and end.last is not None and end.last.kind == Kind.COLLECTIVE
        if end.at is not None and end.way != "ended" and not is_done and not is_aborted:
            found[rank] = end.at.t_ns
    return found


def is_left_out(baseline: Baseline | None, rank: int, before: Event | None, missing: Event, after: Event) -> bool:
    """Whether ``missing`` stands between the other two wherever the fault-free run sends these.

    That needs no equal steps, so that it can be asked of a resumed launch too. None: ``after`` is a rank's first.
    """
    if baseline is None or not baseline.repeatable:
        return False
    line: list[tuple[Hashable, ...] | None] = [None, *(d.what for d in _due(baseline, rank))]
    here = [_as_due(event).what if event is not None else None for event in (before, missing, after)]
    pairs, triples = set(pairwise(line)), set(zip(line, line[1:], line[2:], strict=False))
    return tuple(here) in triples and (here[0], here[2]) not in pairs


def _due(baseline: Baseline, rank: int) -> list[Due]:
    steps = baseline.collectives.get(rank, {})
    return [
        Due(step, phase, str(op), _what(str(op), reduce_op, numel, dtype))
        for step, phases in steps.items()
        for phase, calls in phases.items()
        for op, reduce_op, numel, dtype in calls
        if op not in POINT_TO_POINT
    ]


def _what(op: str, reduce_op: Hashable, numel: Hashable, dtype: Hashable) -> tuple[Hashable, ...]:
    name = canonical(op)
    return (name,) if name in UNEVEN else (name, reduce_op, numel, dtype)


def _as_due(event: Event) -> Due:
    data = event.data
    what = _what(data["op"], data.get("reduce_op"), data.get("numel"), data.get("dtype"))
    return Due(event.step, event.phase, data["op"], what)


def _first_unlike(done: Sequence[Event], rank: int, due: Sequence[Due]) -> Owed | None:
    events = [e for e in done if e.kind == Kind.COLLECTIVE and is_in_step(e) and e.data["op"] not in POINT_TO_POINT]
    places = dict.fromkeys([*((d.step, d.phase) for d in due), *((e.step, e.phase) for e in events)])
    for step, phase in sorted(places, key=lambda p: (p[0], PHASES.index(p[1]))):
        mine = [e for e in events if (e.step, e.phase) == (step, phase)]
        owed = [d for d in due if (d.step, d.phase) == (step, phase)]
        before = [e for e in events if e.step < step or (e.step == step and e.phase == phase)]
        is_past = _is_past(done, step, phase)
        if (found := _unlike_here(rank, mine, owed, before[-1] if before else None, is_past)) is not None:
            return found
    return None


def _unlike_here(
    rank: int, mine: Sequence[Event], owed: Sequence[Due], before: Event | None, is_past: bool
) -> Owed | None:
    sent = [_as_due(event) for event in mine]
    for k in range(max(len(sent), len(owed))):
        here, there = sent[k] if k < len(sent) else None, owed[k] if k < len(owed) else None
        if here is None:
            # Else it was cut short, or waits.
            return Owed(rank=rank, how="skipped", due=there, sent=None, at=before) if is_past else None
        if there is not None and here.what == there.what:
            continue
        how: Literal["skipped", "extra", "mismatch"] = "mismatch"
        if there is None or (k + 1 < len(sent) and sent[k + 1].what == there.what):
            how = "extra"
        elif k + 1 < len(owed) and owed[k + 1].what == here.what:
            how = "skipped"
        return Owed(rank=rank, how=how, due=there, sent=mine[k], at=mine[k])
    return None


def _is_past(done: Sequence[Event], step: int, phase: str) -> bool:
    """Whether this rank made a later update, or sends its gradients: else it may yet come to the place."""
    in_this = phase in BEFORE_UPDATE
    return any(
        e.step > step or (e.step == step and in_this and e.kind == Kind.UPDATE)
        for e in done
        if e.kind == Kind.UPDATE or (e.phase in ("forward", "backward") and is_in_step(e))
    )
