"""Why one launch came to a bad end: what a diagnosis says of it."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Literal

from harness.checks.ends import End
from harness.wire import Event

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


def of_end(end: End, restart: int) -> Cause:
    """The end of a rank as the cause of its launch's."""
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
        name = end.signal or (signal_name(code) if code is not None else None)
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


def moment_ns(end: End) -> int:
    """When it came to it; 0 if that is not on record."""
    return end.at.t_ns if end.at is not None else 0


def signal_name(code: int) -> str:
    """The name of the signal that a negative exit code stands for."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def exception_text(event: Event) -> str:
    """For people only: nothing is decided by it."""
    first_line = next(iter(str(event.data["message"]).splitlines()), "")
    return f"rank {event.rank}, {event.data['type']}: {first_line}"
