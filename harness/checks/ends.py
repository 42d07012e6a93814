"""How each process of one restart came to its end, as its own records tell.

exit        it left by itself, with a code (its own last word)
exception   an exception left the training script
signal      a fatal signal, of which its stacks file tells
ended       the launcher ended it: it wrote its stacks on SIGTERM
vanished    no last word at all: SIGKILL, or an end that no Python code sees
unstarted   it left no record in this restart
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from harness.checks.records import ended_well
from harness.history import SIGTERM_HEADER, History
from harness.wire import Event, Kind

Way = Literal["exit", "exception", "signal", "ended", "vanished", "unstarted"]

# The words of CPython's faulthandler (Modules/faulthandler.c); the first line it writes into the stacks file.
_FATAL = re.compile(r"^Fatal Python error: (.+)$", re.MULTILINE)
_SIGNALS = {
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Floating point exception": "SIGFPE",
    "Floating-point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
    "Segmentation fault": "SIGSEGV",
}


@dataclass(frozen=True, kw_only=True)
class End:
    """The end of one process.

    Attributes:
        code: exit code, negative for a signal; None if nothing tells.
        signal: name of the signal, if it was one that tells its name.
        word: its last word (``exception`` or ``exit`` event), if it had one.
        last: the last thing it did before that: where it was; None if it left no record.
        in_collective: the exception came out of communication, so that it may be a consequence.
    """

    rank: int
    way: Way
    code: int | None = None
    signal: str | None = None
    word: Event | None = None
    last: Event | None = None
    in_collective: bool = False

    @property
    def at(self) -> Event | None:
        return self.word or self.last


def ends_of(history: History, restart: int) -> dict[int, End]:
    """Per rank, how its process of this restart ended."""
    return {rank: _end_of(history, rank, restart) for rank in history.ranks}


def _end_of(history: History, rank: int, restart: int) -> End:
    events = history.of(rank=rank, restart=restart)
    if not events:
        return End(rank=rank, way="unstarted")
    word = next((e for e in events if e.kind == Kind.EXCEPTION), None)
    left = next((e for e in events if e.kind == Kind.EXIT), None)
    last = _last_work(events) if word is not None or left is not None else events[-1]
    if word is not None:
        code = left.data["code"] if left is not None else None
        in_collective = bool(word.data["in_collective"])
        return End(rank=rank, way="exception", code=code, word=word, last=last, in_collective=in_collective)
    if left is not None:
        return End(rank=rank, way="exit", code=left.data["code"], word=left, last=last)
    stacks = history.stacks.get((rank, restart), "")
    fatal = _FATAL.search(stacks)
    code = _code_of_agent(history, events)
    if fatal is not None and fatal[1].strip() in _SIGNALS:
        return End(rank=rank, way="signal", code=code, signal=_SIGNALS[fatal[1].strip()], last=last)
    if SIGTERM_HEADER in stacks:
        return End(rank=rank, way="ended", code=code, signal="SIGTERM", last=last)
    if restart == history.restarts and (history.outcome.timed_out or history.outcome.exit_code is None):
        return End(rank=rank, way="ended", code=code, signal="SIGKILL", last=last)  # on the deadline, with all others
    if restart == history.restarts and ended_well(history):
        return End(rank=rank, way="vanished", code=0 if code is None else code, last=last)
    return End(rank=rank, way="vanished", code=code, last=last)


def fatal_at_exit(history: History, rank: int, restart: int) -> str | None:
    """The signal that ended a process after its script was done, if its stacks tell of one."""
    fatal = _FATAL.search(history.stacks.get((rank, restart), ""))
    return None if fatal is None else _SIGNALS.get(fatal[1].strip(), fatal[1].strip())


def _last_work(events: list[Event]) -> Event:
    """The last event of the training itself: unwinding and teardown have other tags than where the trouble was.

    Of a process that loaded a state with nothing left to do the first of its teardown, which knows the step.
    """
    did = [event for event in events if event.kind not in (Kind.EXCEPTION, Kind.EXIT)]
    work = [event for event in did if event.phase != "teardown"]
    torn_down = [event for event in did if event.phase == "teardown"]
    if torn_down and (not work or work[-1].step == 0 < torn_down[0].step):
        return torn_down[0]
    return work[-1] if work else events[-1]


def _code_of_agent(history: History, events: list[Event]) -> int | None:
    """What torchrun's agent said of this process: it knows those that it found dead, not those that it ended."""
    pid = next((e.data["pid"] for e in events if e.kind == Kind.START), None)
    return next((a.exit_code for a in history.outcome.agent_exits if a.pid == pid), None)
