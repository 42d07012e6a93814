"""Who waits for whom: a collective that a rank has sent, and another member of its group has not, is not done.

That holds in every group at once, so that a rank which is behind in one and waits in another is no end of the chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.checks.sent import sent_by_group
from harness.history import History
from harness.wire import Event


@dataclass(frozen=True, kw_only=True)
class Wait:
    """What one rank waits in.

    Attributes:
        at: the oldest collective it sent that is not done.
        call: its place in the group's order, from 1.
        missing: the members that have not sent it.
    """

    at: Event
    call: int
    missing: tuple[int, ...]


def waits(history: History, restart: int, until_ns: int | None = None) -> dict[int, Wait]:
    """Per rank that waits for another by what was sent until ``until_ns`` (None: all), what it waits in."""
    found: dict[int, Wait] = {}
    for group in sent_by_group(history, restart).values():
        sent = {r: [e for e in events if until_ns is None or e.t_ns <= until_ns] for r, events in group.items()}
        fewest = min(map(len, sent.values()), default=0)
        missing = tuple(sorted(rank for rank, events in sent.items() if len(events) == fewest))
        for rank, events in sent.items():
            if len(events) > fewest and (rank not in found or events[fewest].t_ns < found[rank].at.t_ns):
                found[rank] = Wait(at=events[fewest], call=fewest + 1, missing=missing)
    return dict(sorted(found.items()))


def waited_for(found: Mapping[int, Wait]) -> tuple[int, ...]:
    """The ends of the chains: ranks that others wait for, and that wait for nobody."""
    return tuple(sorted({rank for wait in found.values() for rank in wait.missing} - found.keys()))
