"""A process ends by itself, too early."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from harness.faults.base import RESUMED, Ends, Finding, PointFault
from harness.wire import Event, Kind

MAX_EXIT_CODE = 255  # the kernel keeps eight bits


@dataclass(frozen=True, kw_only=True)
class Exit(PointFault):
    """The rank leaves before its work is done.

    ``os._exit`` ends the process at once, as a crashing C library would. ``sys.exit`` unwinds the script first: its
    ``finally`` blocks run and may wait for the other ranks, and what the launcher then reports may be a victim's
    signal, since sockets close while the interpreter shuts down.

    Attributes:
        code: exit code, 0 to 255; 0 is the quiet case, which no launcher takes for a failure.
        how: os._exit (at once) or sys.exit (unwinds the script first).
    """

    level: ClassVar = "process"
    places: ClassVar = frozenset({"step", "phase", "failpoint", "collective"})
    certifies: ClassVar = "an early exit is noticed and named, exit code 0 too, and does not pass for a finished job"
    does_not_certify: ClassVar = "that exit handlers of the script's libraries are safe to run with peers waiting"
    at_stake: ClassVar = ("CulpritNamed", *RESUMED)
    drawn: ClassVar = {"code": (0, 1, 3, 255)}

    kind: Literal["exit"] = "exit"
    code: int = 0
    how: Literal["os._exit", "sys.exit"] = "os._exit"

    def problems(self) -> list[tuple[str, str]]:
        if not 0 <= self.code <= MAX_EXIT_CODE:
            return [("code", f"must be 0..{MAX_EXIT_CODE}; for the end by a signal use kind = 'kill'")]
        return []

    @property
    def ends_rank(self) -> bool:
        return True

    @property
    def ends_launch(self) -> Ends:
        return "always" if self.code else "maybe"  # with 0, and no work left, it is what success looks like

    @property
    def findings(self) -> tuple[Finding, ...]:
        if self.code or isinstance(self.rank, int) or self.rank in ("nonzero", "last"):
            return ()
        return (Finding(guarantee="EndsLikeBaseline"),)  # where all ranks leave, the launcher takes the job for done

    @property
    def may_vanish(self) -> bool:
        return True  # with no work left, or where a rank of others stays, and the job is started again

    def fire(self) -> None:
        if self.how == "sys.exit":
            sys.exit(self.code)
        os._exit(self.code)

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        for event in after:
            if event.kind == Kind.EXIT:
                if event.data["code"] == self.code:
                    return None
                return f"the script left with code {event.data['code']} at {event.where}, not with {self.code}"
            if self.how == "os._exit":
                return f"the process went on after os._exit({self.code}): {event.kind} at {event.where}"
        if self.how == "os._exit":
            return None  # it may leave no last word
        return f"the script did not leave after {fired.where}: was SystemExit caught there?"
