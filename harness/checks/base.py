"""A guarantee, its check, and the verdict: the contract of every file in this folder.

A check is a pure function of the records: no processes, no faults in action, no torch, no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from harness.history import Baseline, History

Outcome = Literal["valid", "invalid", "unknown", "not-applicable"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a check found of one guarantee.

    Attributes:
        outcome: ``unknown`` never passes; ``not-applicable`` says that the run has nothing this promise is about
            (no checkpoint was ever saved, say), and passes only where the scenario did not ask for it by name.
        reason: for ``invalid`` what was seen against what was promised, for the others why.
        rank, step, restart, operation: the first place where the promise was broken, as far as the records tell.
        seen: values, JSON-able, each under its name.
        file: the line to open first, relative to the run directory (``rank-1/events-0.jsonl:42``).
    """

    guarantee: str
    outcome: Outcome
    reason: str
    promise: str = ""
    rank: int | None = None
    step: int | None = None
    restart: int | None = None
    operation: str | None = None
    seen: dict[str, Any] = field(default_factory=dict)
    file: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


Check = Callable[[History, Baseline | None], Verdict]


@dataclass(frozen=True)
class Guarantee:
    """A named promise and the check that judges it."""

    name: str
    promise: str
    check: Check


GUARANTEES: dict[str, Guarantee] = {}


def guarantee(name: str, promise: str) -> Callable[[Check], Check]:
    """Register the decorated function as the check of guarantee ``name``.

    ``promise`` is one sentence that a failure text can restate to someone who has never seen this project.
    """

    def register(check: Check) -> Check:
        if name in GUARANTEES:
            raise ValueError(f"guarantee {name} is registered twice")
        GUARANTEES[name] = Guarantee(name, promise, check)
        return check

    return register
