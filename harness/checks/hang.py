"""A hang in a few lines: who waits where, for whom, and which rank to look at first.

Ranks of which the same can be said share a line. Of a rank that left no evidence this is said, and nothing guessed.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.checks.progress import Progress, progress
from harness.checks.records import listed
from harness.checks.sent import asked, describe
from harness.checks.stacks import standing
from harness.checks.vote import minority
from harness.checks.waits import Wait, waited_for, waits
from harness.history import History
from harness.wire import Kind

MAX_LINES = 8  # of ranks that differ


@dataclass(frozen=True, kw_only=True)
class Hang:
    """One launch in which nothing moved any more.

    Attributes:
        seen: how far the ranks had come in their collectives.
        ranks: the odd ones out, whom the others wait for; empty if nothing tells.
        evidence: what that one left, in words: where it stood.
        lines: by ranks, in words (``ranks 0, 2``): what they waited in or came to, and where they stood.
    """

    seen: Progress
    ranks: tuple[int, ...]
    evidence: str
    lines: dict[str, str]

    @property
    def rank(self) -> int | None:
        """The odd one out; None if there is none, or several."""
        return self.ranks[0] if len(self.ranks) == 1 else None

    def __str__(self) -> str:
        return f"{self.seen}; rank {self.rank}: {self.evidence}" if self.evidence else str(self.seen)


def hang_of(history: History, restart: int) -> Hang:
    """What is to be said of a launch whose ranks waited for each other, or for something else."""
    seen = progress(history, restart)
    found = waits(history, restart, seen.until_ns)
    odd = _odd(history, restart, seen, found)
    evidence = "; ".join(_evidence(history, odd[0], restart)) if len(odd) == 1 else ""
    return Hang(seen=seen, ranks=odd, evidence=evidence, lines=_lines(history, restart, found, odd))


# -- which rank to look at -----------------------------------------------------------------------------------------


def _odd(history: History, restart: int, seen: Progress, found: dict[int, Wait]) -> tuple[int, ...]:
    """The ranks that the others wait for; where most are waited for and none is known to work, who is not as most."""
    if seen.absent or seen.rendezvous is not None:
        return seen.absent or seen.behind
    ends = waited_for(found)
    places = {rank: standing(history, rank, restart) for rank in history.ranks}
    busy = tuple(rank for rank in ends if (place := places[rank]) is not None and not place.is_communicating)
    if busy or len(ends) == 1:
        return busy or ends
    return minority({rank: _position(history, rank, restart, found) for rank in history.ranks}) or ends


def _position(history: History, rank: int, restart: int, found: dict[int, Wait]) -> object:
    """What is the same for ranks that are at the same place."""
    if (wait := found.get(rank)) is not None:
        return (wait.at.data["group"], wait.call, asked(wait.at))
    sent = history.of(Kind.COLLECTIVE, rank=rank, restart=restart)
    return (sent[-1].data["group"], len(sent), asked(sent[-1])) if sent else None


# -- in words ------------------------------------------------------------------------------------------------------


def _lines(history: History, restart: int, found: dict[int, Wait], odd: tuple[int, ...]) -> dict[str, str]:
    alike: dict[str, list[int]] = {}
    for rank in sorted(history.ranks, key=lambda rank: (rank not in odd, rank)):  # the odd ones first
        alike.setdefault(_line(history, rank, restart, found.get(rank)), []).append(rank)
    shown = list(alike.items())[:MAX_LINES]
    lines = {listed(ranks): text for text, ranks in shown}
    if left := len(alike) - len(shown):
        lines["others"] = f"{left} more kinds of places: see their records and stacks"
    return lines


def _line(history: History, rank: int, restart: int, wait: Wait | None) -> str:
    return "; ".join([_doing(history, rank, restart, wait), *_evidence(history, rank, restart)])


def _doing(history: History, rank: int, restart: int, wait: Wait | None) -> str:
    events = history.of(rank=rank, restart=restart)
    if not events:
        return "left no record"
    last = events[-1]
    if last.kind == Kind.EXIT and not any(e.kind == Kind.EXCEPTION for e in events):
        return f"had left with exit code {last.data['code']}"
    if wait is not None:
        return f"waited for {listed(wait.missing)} in {describe(wait.at)}, call {wait.call}"
    if (gave_up := next((e for e in events if e.kind == Kind.EXCEPTION), None)) is not None:
        return f"gave up with {gave_up.data['type']} at {gave_up.data['site']}"
    if last.kind == Kind.RENDEZVOUS_START:
        return "waited in init_process_group"
    sent = [e for e in events if e.kind == Kind.COLLECTIVE and e.data.get("faulted") != "skipped"]
    come_to = f"came to {describe(sent[-1])}, its number {len(sent)}" if sent else "sent no collective"
    return (
        come_to
        if sent and (last.step, last.phase) == (sent[-1].step, sent[-1].phase)
        else (f"{come_to}; then step {last.step}, {last.phase}")
    )


def _evidence(history: History, rank: int, restart: int) -> list[str]:
    """Where it stood, in which state its process was, and what torch's record adds; or that there is no evidence."""
    place = standing(history, rank, restart)
    state = next((a.state for a in history.outcome.asked if (a.rank, a.restart) == (rank, restart)), None)
    events = history.of(rank=rank, restart=restart)
    has_ended = bool(events) and events[-1].kind == Kind.EXIT
    told = []
    if place is not None:
        told.append(f"stood at {place}")
    elif not has_ended:
        told.append("no evidence: no stacks" if state is None else "no evidence: asked for its stacks, it wrote none")
    if state == "stopped":
        told.append("its process was stopped (SIGSTOP)")
    elif state == "running":
        told.append("its process was busy")
    elif state is not None and state != "sleeping":
        told.append(f"its process was in state {state}")
    flight = history.flights.get((rank, restart))
    if flight is not None and flight.unfinished:
        more = f" and {len(flight.unfinished) - 1} more" if len(flight.unfinished) > 1 else ""
        told.append(f"unfinished in its flight record: {flight.unfinished[0]}{more}")
    return told
