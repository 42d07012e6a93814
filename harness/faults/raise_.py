"""A bug of the user's raises an exception."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from harness.errors import InjectedFault
from harness.faults.base import PointFault, not_surfaced
from harness.wire import Event


@dataclass(frozen=True, kw_only=True)
class Raise(PointFault):
    """The rank raises ``InjectedFault(message)`` and the script does with it what it does with any exception.

    Inside a checkpoint save or load (``at.failpoint``) it stands for an error of the file system: a store may answer it
    by giving up, and that answer counts as its effect too.

    Attributes:
        message: the exception's text.
    """

    level: ClassVar = "process"
    is_told_by_peers: ClassVar = True
    places: ClassVar = frozenset({"step", "phase", "failpoint", "collective"})
    certifies: ClassVar = "the job survives an uncaught exception on one rank at this very point"
    does_not_certify: ClassVar = "survival of exceptions that the script catches and goes on from"

    kind: Literal["raise"] = "raise"
    message: str = "injected by the scenario"

    def problems(self) -> list[tuple[str, str]]:
        if not self.message.strip():
            return [("message", "must not be empty: it is what tells this exception from the script's own")]
        return []

    @property
    def ends_rank(self) -> bool:
        return self.at.failpoint is None  # a save's error may be handled by the store

    def fire(self) -> None:
        raise InjectedFault(self.message)

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        return not_surfaced(InjectedFault.__name__, self.message, fired, after)
