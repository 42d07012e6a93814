"""Who came to ``init_process_group`` and who did not: before it is done no collective tells how far a rank is."""

from __future__ import annotations

from dataclasses import dataclass

from harness.checks.records import listed
from harness.history import History
from harness.wire import Event, Kind

OPERATION = "init_process_group"


@dataclass(frozen=True, kw_only=True)
class Rendezvous:
    """One that is not done.

    Attributes:
        inside: ranks that entered and did not come back.
        outside: ranks that never entered.
        at: the first of those that did.
    """

    inside: tuple[int, ...]
    outside: tuple[int, ...]
    at: Event

    def __str__(self) -> str:
        if self.outside:
            return f"{listed(self.outside)} never entered {OPERATION}, in which {listed(self.inside)} waited"
        return f"{listed(self.inside)} entered {OPERATION} and never came back"


def unfinished_rendezvous(history: History, restart: int, until_ns: int | None) -> Rendezvous | None:
    """The rendezvous that some ranks of this restart were in at ``until_ns`` (None: at the end); None if none was."""
    events = [e for e in history.of((Kind.RENDEZVOUS_START, Kind.RENDEZVOUS_END)) if e.restart == restart]
    last = {e.rank: e for e in events if until_ns is None or e.t_ns <= until_ns}
    inside = {rank: e for rank, e in last.items() if e.kind == Kind.RENDEZVOUS_START}
    if not inside:
        return None
    return Rendezvous(
        inside=tuple(sorted(inside)),
        outside=tuple(rank for rank in history.ranks if rank not in last),
        at=min(inside.values(), key=lambda e: e.t_ns),
    )
