"""How far each rank came in its collectives: who is ahead, behind, or absent."""

from __future__ import annotations

from dataclasses import dataclass

from harness.checks.records import listed
from harness.checks.rendezvous import OPERATION, Rendezvous, unfinished_rendezvous
from harness.checks.sent import describe, sent_by_group
from harness.history import History
from harness.wire import Event, Kind


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Of the largest group of one restart.

    Attributes:
        ahead, behind: ranks that sent the last collective on record, and those that did not; both empty if no
            rank sent any.
        absent: ranks that sent none at all while others did, or that left no record.
        calls: per rank how many it had sent.
        last: the collective that the ranks ahead are in; None if there is none.
        rendezvous: where the ranks were, if none had sent any; ``absent`` are then those that never entered it,
            ``behind`` those that stayed in it when others had come back.
        until_ns: when the first rank gave up waiting: what came later does not count; None if none did.
    """

    ahead: tuple[int, ...]
    behind: tuple[int, ...]
    absent: tuple[int, ...]
    calls: dict[str, int]
    last: Event | None
    rendezvous: Rendezvous | None = None
    until_ns: int | None = None

    @property
    def operation(self) -> str | None:
        if self.rendezvous is not None:
            return OPERATION
        return None if self.last is None else str(self.last.data["op"])

    @property
    def at(self) -> Event | None:
        """The line to open: where the ranks ahead are."""
        return self.last if self.rendezvous is None else self.rendezvous.at

    def __str__(self) -> str:
        if self.rendezvous is not None:
            return str(self.rendezvous)
        if self.last is None:
            return "no collective is on record" + (f", absent: {listed(self.absent)}" if self.absent else "")
        parts = [f"{listed(self.ahead)} in {describe(self.last)}"]
        parts += [f"behind: {listed(self.behind)}"] if self.behind else []
        parts += [f"absent: {listed(self.absent)}"] if self.absent else []
        return "; ".join(parts)


def progress(history: History, restart: int) -> Progress:
    """How far the ranks had come when the first of them gave up waiting (or at the end, if none did)."""
    gave_up_ns = min((e.t_ns for e in history.of(Kind.EXCEPTION) if e.restart == restart), default=None)
    groups = sent_by_group(history, restart)
    sent = max(groups.values(), key=lambda g: (len(g), sum(map(len, g.values()))), default={})
    # A straggler may still send what the others no longer wait for.
    sent = {r: [e for e in events if gave_up_ns is None or e.t_ns <= gave_up_ns] for r, events in sent.items()}
    calls = {rank: len(events) for rank, events in sorted(sent.items())}
    most = max(calls.values(), default=0)
    silent = {rank for rank in history.ranks if not history.of(rank=rank, restart=restart)}
    absent = silent | ({rank for rank, count in calls.items() if count == 0} if most else set())
    if not most and (meeting := unfinished_rendezvous(history, restart, gave_up_ns)) is not None:
        return _of_rendezvous(history, restart, meeting, gave_up_ns)
    ahead = [rank for rank, count in calls.items() if most and count == most]
    return Progress(
        ahead=tuple(ahead),
        behind=tuple(rank for rank, count in calls.items() if count < most and rank not in absent),
        absent=tuple(sorted(absent)),
        calls={f"rank {rank}": count for rank, count in calls.items()},
        last=min((sent[rank][-1] for rank in ahead), key=lambda e: e.t_ns, default=None),
        until_ns=gave_up_ns,
    )


def _of_rendezvous(history: History, restart: int, meeting: Rendezvous, until_ns: int | None) -> Progress:
    others_came_back = len(meeting.inside) + len(meeting.outside) < len(history.ranks)
    raised = {e.rank for e in history.of(Kind.EXCEPTION) if e.restart == restart}
    # Who gave up inside was itself waiting for something.
    behind = [rank for rank in meeting.inside if others_came_back and not meeting.outside and rank not in raised]
    return Progress(
        ahead=tuple(rank for rank in history.ranks if rank not in (*meeting.outside, *behind)),
        behind=tuple(behind),
        absent=meeting.outside,
        calls={},
        last=None,
        rendezvous=meeting,
        until_ns=until_ns,
    )


def stuck_in_teardown(history: History, restart: int) -> list[Event]:
    """The last event of each rank that was still in its teardown, if all the others had left with exit code 0."""
    stuck = []
    for rank in history.ranks:
        events = history.of(rank=rank, restart=restart)
        if not events:
            return []
        last = events[-1]
        if last.phase == "teardown" and last.kind != Kind.EXIT:
            stuck.append(last)
        elif last.kind != Kind.EXIT or last.data["code"] != 0:
            return []
    return stuck
