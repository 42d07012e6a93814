"""A launch that failed because a process of it died, or its script raised an exception of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace

from harness.checks.cause import Cause, moment_ns, of_end, signal_name
from harness.checks.ends import End
from harness.checks.sent import Sent, asked, sent_by_group
from harness.history import AgentExit, History
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
    signalled = [end for end in ends.values() if end.way in ("signal", "vanished") or _is_terminated(end)]
    fallen = _fallen(history, restart, ends, signalled)
    if first := [end for end in signalled if end.rank not in fallen]:
        found = _found_dead(history, restart)
        return of_end(min(first, key=lambda end: (_order(found, end.rank), moment_ns(end))), restart)
    raised = [end for end in ends.values() if end.way == "exception" and not end.in_collective]
    if raised:
        # A save or load that is given up is given up on all ranks: those raise as well whose part of it was well.
        own = [end for end in raised if not _blamed_by(end)]
        return of_end(min(own, key=moment_ns), restart) if own else _told_by(min(raised, key=moment_ns), restart, ends)
    return None


def _fallen(history: History, restart: int, ends: Mapping[int, End], died: list[End]) -> set[int]:
    """Of the ranks that a signal ended those that fell after one that had failed or left of itself, or of their like.

    A signal alone does not make a culprit: a backend, or a script, that loses a peer may abort its own process.
    """
    gone = [end for end in ends.values() if _is_of_itself(end)]
    may_wait = gone and any(end.signal == "SIGABRT" for end in died)
    sent = [*sent_by_group(history, restart).values()] if may_wait else []
    found = {rank: told.t_ns for rank, told in _found_dead(history, restart).items() if told.t_ns is not None}
    fallen: set[int] = set()
    for first in gone:  # it grows: of one that fell others fall
        for end in died:
            if end.rank not in fallen and (
                _outlived(first, end, found) or _aborted_for_want_of(history, restart, first, end, found, sent)
            ):
                fallen.add(end.rank)
                gone.append(end)
    return fallen


def _outlived(first: End, end: End, found: Mapping[int, int]) -> bool:
    """Whether it still lived when the first had failed: it wrote more, or the agent found it dead later."""
    if first.word is None or (first.way == "exit" and first.code == 0):
        return False  # that one may have been done
    if end.last is not None and end.last.t_ns > first.word.t_ns:
        return True
    return first.rank in found and end.rank in found and found[first.rank] < found[end.rank]


def _aborted_for_want_of(
    history: History, restart: int, first: End, end: End, found: Mapping[int, int], sent: Iterable[Sent]
) -> bool:
    """Whether it aborted itself in a call that the first never sent: its last record is older than its death.

    Not if the agent had found it dead before the first began to fail. Other signals come from outside, or of its own
    memory: not of a lost peer.
    """
    if end.signal != "SIGABRT" or not any(_waits(group, end.rank, first.rank) for group in sent):
        return False
    return first.word is None or end.rank not in found or found[end.rank] > _began_to_fail_ns(history, restart, first)


def _waits(group: Sent, waiting: int, absent: int) -> bool:
    """Whether the last call of the one is none that the other sent."""
    if absent not in group or not group.get(waiting):
        return False
    call = len(group[waiting]) - 1
    return len(group[absent]) <= call or asked(group[absent][call]) != asked(group[waiting][call])


def _began_to_fail_ns(history: History, restart: int, end: End) -> int:
    """When its work was over: it may take its group down before its last word is on record."""
    worked = 0 if end.last is None else end.last.seq
    mine = history.of(rank=end.rank, restart=restart)
    return next((event.t_ns for event in mine if event.seq > worked), moment_ns(end))


def _is_of_itself(end: End) -> bool:
    """Whether it left, or raised what neither came out of communication nor was of another's save or load."""
    return end.way == "exit" or (end.way == "exception" and not end.in_collective and not _blamed_by(end))


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


def _found_dead(history: History, restart: int) -> dict[int, AgentExit]:
    """Of each rank that the agent found dead what it said."""
    told = {told.pid: told for told in history.outcome.agent_exits}
    starts = history.of(Kind.START, restart=restart)
    return {start.rank: told[start.data["pid"]] for start in starts if start.data["pid"] in told}


def _order(found: Mapping[int, AgentExit], rank: int) -> int:
    """When the agent saw that it had ended; after all others if it did not."""
    return found[rank].order if rank in found else sys.maxsize
