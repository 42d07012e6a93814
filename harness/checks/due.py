"""What the fault-free run says each rank owed: who parted, where the ranks' own comparison names nobody."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.checks.records import failed_restarts
from harness.checks.sent import BEFORE_UPDATE, POINT_TO_POINT, UNEVEN, canonical
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

    Only of the first launch, and only if it failed: a resumed one sends other collectives. Ranks that all leave that
    run's order do something else together; nobody is named for it.
    """
    if baseline is None or not baseline.repeatable or restart != 0 or 0 not in failed_restarts(history):
        return None
    due = {rank: _due(baseline, rank) for rank in history.ranks}
    orders = [[d.what for d in line] for line in due.values()]
    if not orders or not orders[0] or any(order != orders[0] for order in orders):
        return None
    parted = [owed for rank in history.ranks if (owed := _first_unlike(history, rank, due[rank])) is not None]
    return parted[0] if len(parted) == 1 and len(history.ranks) > 1 else None


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


def _first_unlike(history: History, rank: int, due: Sequence[Due]) -> Owed | None:
    events = [
        e
        for e in history.of(Kind.COLLECTIVE, rank=rank, restart=0)
        if e.data.get("faulted") != "skipped" and e.data["op"] not in POINT_TO_POINT
    ]
    places = dict.fromkeys([*((d.step, d.phase) for d in due), *((e.step, e.phase) for e in events)])
    for step, phase in sorted(places, key=lambda p: (p[0], PHASES.index(p[1]))):
        mine = [e for e in events if (e.step, e.phase) == (step, phase)]
        owed = [d for d in due if (d.step, d.phase) == (step, phase)]
        before = [e for e in events if e.step < step or (e.step == step and e.phase == phase)]
        is_past = _is_past(history, rank, step, phase)
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


def _is_past(history: History, rank: int, step: int, phase: str) -> bool:
    """Whether this rank made a later update, or sends its gradients: else it may yet come to the place."""
    in_this = phase in BEFORE_UPDATE
    done = history.of((Kind.UPDATE, Kind.COLLECTIVE), rank=rank, restart=0)
    return any(
        e.step > step or (e.step == step and in_this and e.kind == Kind.UPDATE)
        for e in done
        if e.kind == Kind.UPDATE or (e.phase in ("forward", "backward") and e.data.get("faulted") != "skipped")
    )
