"""A guarantee, its check, and the verdict: the contract of every file in this folder.

A check is a pure function of the records: no processes, no faults in action, no torch, no clock.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from harness.history import Baseline, History
from harness.wire import Event

Outcome = Literal["valid", "invalid", "unknown", "not-applicable"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a check found of one guarantee.

    Attributes:
        outcome: ``unknown`` never passes; ``not-applicable`` says that the run has nothing this promise is about
            (no checkpoint was ever saved, say), and passes only where the scenario did not ask for it by name.
        guarantee, promise: filled in by the ``guarantee`` decorator.
        reason: for ``invalid`` what was seen against what was promised, for the others why.
        rank, step, restart, operation: the first place where the promise was broken, as far as the records tell.
        seen: values, JSON-able, each under its name.
        file: the line to open first, relative to the run directory (``rank-1/events-0.jsonl:42``).
    """

    outcome: Outcome
    reason: str
    guarantee: str = ""
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


def valid(reason: str, **seen: Any) -> Verdict:
    return Verdict(outcome="valid", reason=reason, seen=seen)


def unknown(reason: str, at: Event | None = None, **place: Any) -> Verdict:
    """The records cannot tell; ``at`` is the event that raises the question, ``place`` as for ``invalid``."""
    return Verdict(outcome="unknown", reason=reason, **(_place(at) | place))


def not_applicable(reason: str) -> Verdict:
    return Verdict(outcome="not-applicable", reason=reason)


def invalid(
    reason: str,
    at: Event | None = None,
    *,
    operation: str | None = None,
    seen: dict[str, Any] | None = None,
    **place: Any,
) -> Verdict:
    """The promise is broken; rank, step, restart and file are those of ``at`` unless ``place`` says otherwise."""
    return Verdict(outcome="invalid", reason=reason, operation=operation, seen=seen or {}, **(_place(at) | place))


def _place(at: Event | None) -> dict[str, Any]:
    return {} if at is None else {"rank": at.rank, "step": at.step, "restart": at.restart, "file": at.where}


@dataclass(frozen=True)
class Guarantee:
    """A named promise and the check that judges it.

    Attributes:
        needs_baseline: the check asks for the fault-free run: it has a name for its second argument, not ``_``.
    """

    name: str
    promise: str
    check: Check
    needs_baseline: bool = True


GUARANTEES: dict[str, Guarantee] = {}


def guarantee(name: str, promise: str, *, needs_records: bool = True) -> Callable[[Check], Check]:
    """Register the decorated function as the check of guarantee ``name``.

    Args:
        promise: one sentence that a failure text can restate to someone who has never seen this project.
        needs_records: the check reads the ranks' records: where a rank left none, or lines are damaged, what looks
            kept is unknown. What is seen to be broken stays broken.
    """

    def register(check: Check) -> Check:
        if name in GUARANTEES:
            raise ValueError(f"guarantee {name} is registered twice")

        @functools.wraps(check)
        def judge(history: History, baseline: Baseline | None) -> Verdict:
            verdict = check(history, baseline)
            if needs_records and verdict.outcome != "unknown" and (gap := _gap(history)):
                verdict = unknown(f"{gap}; what is on record: {verdict.reason}")
            return replace(verdict, guarantee=name, promise=promise)

        GUARANTEES[name] = Guarantee(
            name, promise, judge, needs_baseline=[*inspect.signature(check).parameters][1] != "_"
        )
        return judge

    return register


def _gap(history: History) -> str | None:
    """What is missing from the records, if anything is."""
    if silent := [rank for rank in history.ranks if rank not in history.recorded]:
        return f"no record of rank {', '.join(map(str, silent))}"
    if history.damaged:
        num_lines = len(history.damaged)
        return f"{num_lines} damaged line{'s' * (num_lines > 1)} in the records, the first: {history.damaged[0]}"
    return None
