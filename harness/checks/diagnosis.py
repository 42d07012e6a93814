"""The first cause of each failed restart: whose fault it was, and what it did; victims are not named.

Decided by what ranks sent and how their processes ended, in this order: the ranks' data or collectives parted; a rank
was ended by a signal that the launcher did not send; an exception that did not come out of communication; a rank left
early; else it is a hang, and the ranks behind are named. Never by an error's text.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from harness.checks.collectives import Deviation, first_deviation
from harness.checks.ends import End, ends_of, fatal_at_exit
from harness.checks.hang import hang_of
from harness.checks.loaders import Parting, parting
from harness.checks.progress import stuck_in_teardown
from harness.checks.records import failed_restarts, listed
from harness.checks.sent import describe, sent_by_group
from harness.history import Baseline, History
from harness.wire import Event, Kind

_WITHIN_AN_UPDATE = ("load_batch", "forward", "backward")
AT_ONCE_S = 1.0  # a connection that is closed is noticed by the next call that goes over it

How = Literal[
    "signal",
    "exception",
    "exit",
    "skipped",
    "extra",
    "swapped",
    "mismatch",
    "loader",
    "hang",
    "stopped",
    "disconnected",
]


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Why one launch came to a bad end.

    Attributes:
        rank: None if the records leave it undecided, or name several.
        ranks: those, where they name several.
        step, phase: where that rank was.
        operation: the collective that it is about, if any.
        how: ``signal`` stands for every end without a last word, too.
        exit_code: of the process, negative for a signal; None if nothing tells.
        detail: one line for people.
        event: the line to open; None if there is none.
    """

    rank: int | None
    restart: int
    step: int | None
    phase: str | None
    operation: str | None
    how: How
    detail: str
    exit_code: int | None = None
    event: Event | None = None
    ranks: tuple[int, ...] = ()

    @property
    def named(self) -> tuple[int, ...]:
        """The ranks that it names, ascending; empty if it names none."""
        return self.ranks if self.rank is None else (self.rank,)


def diagnose(history: History, baseline: Baseline | None = None) -> list[Cause]:
    """One cause for each launch that failed, by restart count.

    Args:
        baseline: helps to tell between two ranks whose collectives differ who is wrong.
    """
    return [first_cause(history, restart, baseline) for restart in failed_restarts(history)]


def first_cause(history: History, restart: int, baseline: Baseline | None) -> Cause:
    """Of one launch that failed."""
    ends = ends_of(history, restart)
    died = _died(history, restart, ends)
    early = _parted_first(history, restart, ends, died, baseline)
    if early is not None:
        return early
    if died is not None:
        return died
    return (
        _stuck_at_the_end(history, restart, ends)
        or _left_early(history, restart, ends)
        or _was_leaving(history, restart, ends)
        or _teardown(history, restart, ends)
        or _stopped(history, restart, ends)
        or _disconnected(history, restart, ends)
        or _hang(history, restart)
    )


# -- the ranks parted ----------------------------------------------------------------------------------------------


def _parted_first(
    history: History, restart: int, ends: Mapping[int, End], died: Cause | None, baseline: Baseline | None
) -> Cause | None:
    """What the ranks did differently before any of them died."""
    loaders, deviation = parting(history, restart), first_deviation(history, restart, baseline)
    if deviation is not None and _is_unwinding(deviation, ends):
        deviation = None
    if loaders is not None and (deviation is None or loaders.at.t_ns <= deviation.met_ns):
        cause = _of_loaders(loaders)
    elif deviation is not None:
        cause = _of_deviation(deviation)
    else:
        return None
    died_at = died.event if died is not None else None
    is_first = died_at is None or cause.event is None or cause.event.t_ns <= died_at.t_ns
    is_consequence = died is not None and deviation is not None and _died_of(history, deviation, died, ends)
    return cause if is_first or is_consequence else None


def _of_loaders(found: Parting) -> Cause:
    counts = ", ".join(f"{rank}: {count}" for rank, count in found.batches.items())
    return Cause(
        rank=found.rank,
        restart=found.restart,
        step=found.at.step,
        phase=found.at.phase,
        operation=None,
        how="loader",
        detail=f"loaders of unequal length in epoch {found.epoch}: {counts}",
        event=found.at,
    )


def _is_unwinding(deviation: Deviation, ends: Mapping[int, End]) -> bool:
    """Whether what a rank sent is only what it did on its way out, with an exception of its own."""
    if deviation.rank is None or deviation.is_unsent:
        return False
    end = ends[deviation.rank]
    if end.way != "exception" or end.in_collective or end.last is None:
        return False
    return end.last.seq <= deviation.at.seq and end.last.step == deviation.step


def _died_of(history: History, deviation: Deviation, died: Cause, ends: Mapping[int, End]) -> bool:
    """Whether a process aborted of what another rank did: inside the very calls in which that rank parted, as backends
    do on unequal shapes, or anywhere, when that rank came back from a call that it never sent and left.

    Its last record is older than its death, so that the order in time says nothing.
    """
    end = ends[died.rank] if died.rank is not None else None
    if end is None or end.signal != "SIGABRT" or deviation.rank == end.rank:
        return False
    met = sent_by_group(history, deviation.restart)[deviation.group].get(end.rank, [])[deviation.call - 1 :]
    return deviation.is_unsent or end.last in met


def _of_deviation(found: Deviation) -> Cause:
    who = "ranks differ" if found.rank is None else f"rank {found.rank} {found.how}"
    sent = "; ".join(f"{rank}: {what}" for rank, what in list(found.sent.items())[:8])
    return Cause(
        rank=found.rank,
        restart=found.restart,
        step=found.step,
        phase=found.phase,
        operation=found.operation,
        how=found.how,
        detail=f"{who} {found.operation}, call {found.call} ({sent})",
        event=found.at,
    )


# -- a process died ------------------------------------------------------------------------------------------------


def _died(history: History, restart: int, ends: Mapping[int, End]) -> Cause | None:
    exit_code = history.outcome.exit_code
    if restart == history.restarts and exit_code is not None and exit_code < 0:
        name = _signal_name(exit_code)
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
    reported = {a.pid: order for order, a in enumerate(history.outcome.agent_exits)}
    signalled = [end for end in ends.values() if end.way in ("signal", "vanished") or _is_terminated(end)]
    if signalled:
        return _of_end(min(signalled, key=lambda end: (_order(history, end, restart, reported), _time(end))), restart)
    raised = [end for end in ends.values() if end.way == "exception" and not end.in_collective]
    if raised:
        # A save or load that is given up is given up on all ranks: those raise as well whose part of it was well.
        own = [end for end in raised if not _blamed_by(end)]
        return _of_end(min(own, key=_time), restart) if own else _told_by(min(raised, key=_time), restart, ends)
    return None


def _blamed_by(end: End) -> list[int]:
    """The ranks that a save or load failed on, as this one was told that gave it up with them; empty if it is one."""
    if end.last is None or end.last.kind not in (Kind.SAVE_ERROR, Kind.LOAD_ERROR):
        return []
    failed: list[int] = end.last.data.get("ranks") or []
    return [] if end.rank in failed else failed


def _told_by(end: End, restart: int, ends: Mapping[int, End]) -> Cause:
    """What a rank was told of another, which was ended before it said so itself."""
    told, blamed = _of_end(end, restart), [rank for rank in _blamed_by(end) if ends[rank].way == "ended"]
    if len(blamed) != 1 or (last := ends[blamed[0]].last) is None:
        return told
    detail = f"{told.detail} (as rank {end.rank} was told)"
    return replace(told, rank=blamed[0], step=last.step, phase=last.phase, exit_code=None, detail=detail, event=last)


def _is_terminated(end: End) -> bool:
    """Whether SIGTERM came from elsewhere: the agent found this rank dead by it, so it did not send it."""
    return end.way == "ended" and end.code is not None and end.code < 0


def _order(history: History, end: End, restart: int, reported: Mapping[int, int]) -> int:
    pid = next((e.data["pid"] for e in history.of(Kind.START, rank=end.rank, restart=restart)), None)
    return reported.get(pid, len(reported)) if pid is not None else len(reported)


def _time(end: End) -> int:
    return end.at.t_ns if end.at is not None else 0


def _signal_name(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _of_end(end: End, restart: int) -> Cause:
    code = end.code
    if end.way == "exception":
        assert end.word is not None, "an exception is known by its event"
        data = end.word.data
        site = f" at {data['site']}" if data.get("site") else ""
        how: How = "exception"
        detail = f"{data['type']}: {str(data['message']).splitlines()[0] if data['message'] else ''}{site}"
    elif end.way == "exit" or (code is not None and code >= 0):
        how, detail = "exit", f"left with exit code {code}"
    else:
        how = "signal"
        name = end.signal or (_signal_name(code) if code is not None else None)
        detail = f"ended by {name}" if name else "ended without a last word: SIGKILL, or an exit that no code saw"
        if code is None and end.signal is not None:
            code = -signal.Signals[end.signal]
    last = end.last
    return Cause(
        rank=end.rank,
        restart=restart,
        step=last.step if last else None,
        phase=last.phase if last else None,
        operation=None,
        how=how,
        detail=detail,
        exit_code=code,
        event=end.at,
    )


# -- nobody died ---------------------------------------------------------------------------------------------------


def _stuck_at_the_end(history: History, restart: int, ends: Mapping[int, End]) -> Cause | None:
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


def _left_early(history: History, restart: int, ends: Mapping[int, End]) -> Cause | None:
    left = [end for end in ends.values() if end.way == "exit"]
    bad = [end for end in left if end.code != 0]
    if bad:
        return _of_end(min(bad, key=_time), restart)
    stayed = [end for end in ends.values() if end.way not in ("exit", "unstarted")]
    if left and stayed:
        return _of_end(min(left, key=_time), restart)
    return None


def _was_leaving(history: History, restart: int, ends: Mapping[int, End]) -> Cause | None:
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


def _teardown(history: History, restart: int, ends: Mapping[int, End]) -> Cause | None:
    """All scripts were done, and a process was ended while it left: late, but no crash of the training."""
    if any(end.way != "exit" for end in ends.values()):
        return None
    for rank, end in ends.items():
        code = _agent_code(history, rank, restart)
        name = fatal_at_exit(history, rank, restart) or (_signal_name(code) if code is not None and code < 0 else None)
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


def _stopped(history: History, restart: int, ends: Mapping[int, End]) -> Cause | None:
    """No rank failed, and yet the launcher says that the job did, as when it is told to stop, or did not end."""
    outcome = history.outcome
    if outcome.agent_exits or any((end.way, end.code) != ("exit", 0) for end in ends.values()):
        return None
    last = max(ends.values(), key=_time)
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


def _disconnected(history: History, restart: int, ends: Mapping[int, End]) -> Cause | None:
    """Communication failed long before its timeout, and no rank had ended or left by then: connections were lost."""
    raised = [end for end in ends.values() if end.way == "exception" and end.word is not None and end.last is not None]
    first = min(raised, key=_time, default=None)
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
        f"and nothing on record tells whose they were; the first to fail is {_exception_text(first.word)}",
        event=first.word,
    )


def _agent_code(history: History, rank: int, restart: int) -> int | None:
    pid = next((e.data["pid"] for e in history.of(Kind.START, rank=rank, restart=restart)), None)
    return next((a.exit_code for a in history.outcome.agent_exits if a.pid == pid), None)


def _exception_text(event: Event) -> str:
    """For people only: nothing is decided by it."""
    first_line = next(iter(str(event.data["message"]).splitlines()), "")
    return f"rank {event.rank}, {event.data['type']}: {first_line}"


def _hang(history: History, restart: int) -> Cause:
    found = hang_of(history, restart)
    seen = found.seen
    gave_up = next((e for e in history.of(Kind.EXCEPTION) if e.restart == restart), None)
    until_ns = None if gave_up is None else gave_up.t_ns
    mine = history.of(rank=found.ranks[0], restart=restart) if found.ranks else []
    own = [e for e in mine if until_ns is None or e.t_ns <= until_ns]
    # The others may be an update ahead; a rank that has just made its own is on its way to where they wait.
    place = own[-1] if own and own[-1].kind != Kind.UPDATE else seen.at
    said = f"; the first to give up is {_exception_text(gave_up)}" if gave_up is not None else ""
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
