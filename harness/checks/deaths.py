"""A launch that failed because a process of it died, or its script raised an exception of its own."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

from harness.checks.cause import Cause, moment_ns, of_end, signal_name
from harness.checks.ends import End
from harness.history import History
from harness.wire import Kind


def first_death(history: History, restart: int, ends: Mapping[int, End]) -> Cause | None:
    """Of the launcher itself, or else of the rank that died first; None if none did."""
    exit_code = history.outcome.exit_code
    if restart == history.restarts and exit_code is not None and exit_code < 0:
        name = signal_name(exit_code)
        return Cause(
            rank=None,
            restart=restart,
            step=None,
            phase=None,
            operation=None,
            how="signal",
            exit_code=exit_code,
            detail=f"the launcher itself was ended by {name}; what became of its ranks follows from that",
        )
    reported = {a.pid: a.order for a in history.outcome.agent_exits}
    signalled = [end for end in ends.values() if end.way in ("signal", "vanished") or _is_terminated(end)]
    if signalled:
        return of_end(
            min(signalled, key=lambda end: (_order(history, end, restart, reported), moment_ns(end))), restart
        )
    raised = [end for end in ends.values() if end.way == "exception" and not end.in_collective]
    if raised:
        # A save or load that is given up is given up on all ranks: those raise as well whose part of it was well.
        own = [end for end in raised if not _blamed_by(end)]
        return of_end(min(own, key=moment_ns), restart) if own else _told_by(min(raised, key=moment_ns), restart, ends)
    return None


def _blamed_by(end: End) -> list[int]:
    """The ranks that a save or load failed on, as this one was told that gave it up with them; empty if it is one."""
    if end.last is None or end.last.kind not in (Kind.SAVE_ERROR, Kind.LOAD_ERROR):
        return []
    failed: list[int] = end.last.data.get("ranks") or []
    return [] if end.rank in failed else failed


def _told_by(end: End, restart: int, ends: Mapping[int, End]) -> Cause:
    """What a rank was told of another, which was ended before it said so itself."""
    told, blamed = of_end(end, restart), [rank for rank in _blamed_by(end) if ends[rank].way == "ended"]
    if len(blamed) != 1 or (last := ends[blamed[0]].last) is None:
        return told
    detail = f"{told.detail} (as rank {end.rank} was told)"
    return replace(told, rank=blamed[0], step=last.step, phase=last.phase, exit_code=None, detail=detail, event=last)


def _is_terminated(end: End) -> bool:
    """Whether SIGTERM came from elsewhere: the agent found this rank dead by it, so it did not send it."""
    return end.way == "ended" and end.code is not None and end.code < 0


def _order(history: History, end: End, restart: int, reported: Mapping[int, int]) -> int:
    """When the agent saw that it had ended; after all others if it did not."""
    pid = next((e.data["pid"] for e in history.of(Kind.START, rank=end.rank, restart=restart)), None)
    return reported.get(-1 if pid is None else pid, sys.maxsize)
