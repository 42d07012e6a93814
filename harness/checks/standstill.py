"""A launch that failed although nobody died of itself: a rank left, connections were lost, or all waited."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from harness.checks.cause import Cause, exception_text, moment_ns, of_end, signal_name
from harness.checks.ends import End, fatal_at_exit
from harness.checks.hang import hang_of
from harness.checks.progress import stuck_in_teardown
from harness.checks.records import listed
from harness.checks.sent import describe, sent_by_group
from harness.history import History
from harness.wire import Kind

_WITHIN_AN_UPDATE = ("load_batch", "forward", "backward")
AT_ONCE_S = 1.0  # a connection that is closed is noticed by the next call that goes over it


def stuck_at_the_end(history: History, restart: int, ends: Mapping[int, End]) -> Cause | None:
    """Ranks that have come to the end of the training and stay in the teardown."""
    stuck = stuck_in_teardown(history, restart)
    if not stuck:
        return None
    return Cause(
        rank=stuck[0].rank if len(stuck) == 1 else None,
        restart=restart,
        step=stuck[0].step,
        phase="teardown",
        operation=None,
        how="hang",
        detail=f"{listed([e.rank for e in stuck])} came to the end of the training and stayed in the teardown",
        event=stuck[0],
    )


def left_early(history: History, restart: int, ends: Mapping[int, End]) -> Cause | None:
    """A rank that left with an exit code, or while others stayed."""
    left = [end for end in ends.values() if end.way == "exit"]
    bad = [end for end in left if end.code != 0]
    if bad:
        return of_end(min(bad, key=moment_ns), restart)
    stayed = [end for end in ends.values() if end.way not in ("exit", "unstarted")]
    if left and stayed:
        return of_end(min(left, key=moment_ns), restart)
    return None


def was_leaving(history: History, restart: int, ends: Mapping[int, End]) -> Cause | None:
    """A rank that was ended in its teardown, before its end was on record: the others failed for want of it, and had
    sent more. Not one that unwinds: it comes from an update that it had made.
    """
    for end in ends.values():
        events = history.of(rank=end.rank, restart=restart)
        work = next((event for event in reversed(events) if event.phase != "teardown"), None)
        if end.way != "ended" or work is None or events[-1].phase != "teardown" or work.phase in _WITHIN_AN_UPDATE:
            continue
        for sent in sent_by_group(history, restart).values():
            if end.rank in sent and len(sent[end.rank]) < max(map(len, sent.values())):
                return Cause(
                    rank=end.rank,
                    restart=restart,
                    step=work.step,
                    phase=work.phase,
                    operation=None,
                    how="exit",
                    detail="had come to the end of its script, and was ended there",
                    event=events[-1],
                )
    return None


def ended_in_teardown(history: History, restart: int, ends: Mapping[int, End]) -> Cause | None:
    """All scripts were done, and a process was ended while it left: late, but no crash of the training."""
    if any(end.way != "exit" for end in ends.values()):
        return None
    for rank, end in ends.items():
        code = _agent_code(history, rank, restart)
        name = fatal_at_exit(history, rank, restart) or (signal_name(code) if code is not None and code < 0 else None)
        if name is not None:
            return Cause(
                rank=rank,
                restart=restart,
                step=end.word.step if end.word else None,
                phase="teardown",
                operation=None,
                how="signal",
                detail=f"ended by {name} at exit, after its script was done",
                exit_code=code,
                event=end.word,
            )
    return None


def stopped(history: History, restart: int, ends: Mapping[int, End]) -> Cause | None:
    """No rank failed, and yet the launcher says that the job did, as when it is told to stop, or did not end."""
    outcome = history.outcome
    if outcome.agent_exits or any((end.way, end.code) != ("exit", 0) for end in ends.values()):
        return None
    last = max(ends.values(), key=moment_ns)
    found = f"the launcher's is {outcome.exit_code}, as when it is told to stop"
    if outcome.timed_out:
        found = "the launcher, or what they had started, had not ended when the time was over"
    return Cause(
        rank=None,
        restart=restart,
        step=last.last.step if last.last else None,
        phase=None,
        operation=None,
        how="stopped",
        exit_code=outcome.exit_code,
        detail=f"all ranks left with exit code 0; {found}",
        event=last.at,
    )


def disconnected(history: History, restart: int, ends: Mapping[int, End]) -> Cause | None:
    """Communication failed long before its timeout, and no rank had ended or left by then: connections were lost."""
    raised = [end for end in ends.values() if end.way == "exception" and end.word is not None and end.last is not None]
    first = min(raised, key=moment_ns, default=None)
    if first is None or first.word is None or first.last is None or not first.in_collective:
        return None
    sent = history.of(Kind.COLLECTIVE, rank=first.rank, restart=restart)
    waited_s = (first.word.t_ns - sent[-1].t_ns) / 1e9 if sent else inf
    if waited_s >= min(AT_ONCE_S, history.plan.collective_timeout_s / 2):
        return None  # it waited: a call may have a shorter timeout of its own
    return Cause(
        rank=None,
        restart=restart,
        step=first.last.step,
        phase=first.last.phase,
        operation=sent[-1].data["op"],
        how="disconnected",
        detail=f"connections were lost {waited_s:.2f} s after {describe(sent[-1])}; no rank had ended, "
        f"and nothing on record tells whose they were; the first to fail is {exception_text(first.word)}",
        event=first.word,
    )


def _agent_code(history: History, rank: int, restart: int) -> int | None:
    pid = next((e.data["pid"] for e in history.of(Kind.START, rank=rank, restart=restart)), None)
    return next((a.exit_code for a in history.outcome.agent_exits if a.pid == pid), None)


def hang(history: History, restart: int) -> Cause:
    """What is left: all waited, and the ranks behind are named."""
    found = hang_of(history, restart)
    seen = found.seen
    gave_up = next((e for e in history.of(Kind.EXCEPTION) if e.restart == restart), None)
    until_ns = None if gave_up is None else gave_up.t_ns
    mine = history.of(rank=found.ranks[0], restart=restart) if found.ranks else []
    own = [e for e in mine if until_ns is None or e.t_ns <= until_ns]
    # The others may be an update ahead; a rank that has just made its own is on its way to where they wait.
    place = own[-1] if own and own[-1].kind != Kind.UPDATE else seen.at
    said = f"; the first to give up is {exception_text(gave_up)}" if gave_up is not None else ""
    return Cause(
        rank=found.rank,
        ranks=found.ranks if found.rank is None else (),
        restart=restart,
        step=place.step if place else None,
        phase=place.phase if place else None,
        operation=seen.operation,
        how="hang",
        detail=f"hang: {found}{said}",
        event=seen.at,
    )
