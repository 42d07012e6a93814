"""The family of faults that act in place of one piece of a training's work: a backward, an update, a save, a load.

Which work there is:

    backward         one call of ``backward()``, after the phase was entered
    unscale          one call of ``GradScaler.unscale_()`` by the script, after backward
    optimizer_step   one update, by the optimizer whose steps are counted; hooks run before and after it as ever
    save, load       one call of ``CheckpointStore``; other code's files have no one place to act at
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Protocol

from harness.faults.base import Ends, Fault, Finding, Level, effect_of
from harness.wire import Event, GuaranteeName, Kind

WorkPlace = Literal["backward", "unscale", "optimizer_step", "save", "load"]
Part = Literal["parameter", "optimizer"]
Gradient = Literal["reduced", "local"]


class Work(Protocol):
    """One piece of work, as a WorkFault sees it. What is done otherwise is measured and recorded."""

    def do(self) -> Any:
        """Do it as if there were no fault; returns what it returns."""

    def leave_out(self) -> Any:
        """Do nothing; returns what stands in for its result."""

    def do_at_lr(self, factor: float) -> Any:
        """Make the update with the learning rates of all groups multiplied by ``factor``, and put them back."""

    def do_with_overflow(self, gradient: Gradient) -> Any:
        """Go backward, and have infinite gradients: of this rank before they are reduced, or after."""

    def flip_bit(self, part: Part, name: str | None, index: int, bit: int) -> None:
        """Invert one bit of an element of the state; the first tensor's if no name is given."""

    def add_to_buffer(self, name: str | None, amount: float) -> None:
        """Add to each element of a floating-point buffer; the first one if no name is given."""


class WorkFault(Fault):
    """Acts in place of the next piece of its kind of work that matches.

    Class attributes:
        acts_in: which work it is.
    """

    level: ClassVar[Level] = "logic"
    places: ClassVar = frozenset({"step"})
    at_stake: ClassVar[tuple[GuaranteeName, ...]] = ("ReplicasAgree",)
    acts_in: ClassVar[WorkPlace]

    @property
    def ends_launch(self) -> Ends:
        return "never" if self.acts_in in ("optimizer_step", "unscale") else "maybe"  # the others communicate

    @property
    def findings(self) -> tuple[Finding, ...]:
        return (Finding(guarantee="ReplicasAgree", names_rank=True, names_step=True),)

    def replace(self, work: Work) -> Any:
        """Act in place of the work; returns what the script gets for it."""
        raise NotImplementedError


class LeavesOut(WorkFault):
    """Leaves a piece of work out.

    Class attributes:
        kind_of_it: what would be on record of the work if it had been done, before the next phase; None: nothing.
    """

    kind_of_it: ClassVar[Kind | None] = None

    def replace(self, work: Work) -> Any:
        return work.leave_out()

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        for event in after:
            if event.kind == Kind.PHASE:
                break
            if event.kind == self.kind_of_it:
                what = f"{event.data['op']} was sent" if "op" in event.data else "it began"
                return f"the rank took part in the {self.acts_in} that should be left out: {what} at {event.where}"
        return None if effect_of(fired, after) else f"nothing is on record of what was left out at {fired.where}"


def not_changed(fired: Event, after: Sequence[Event]) -> str | None:
    """None if the state that the fault aimed at is another one now, else why it is not."""
    effect = effect_of(fired, after)
    if effect is None:
        return f"nothing is on record of what was changed at {fired.where}"
    if problem := effect.get("problem"):
        return str(problem)
    return None if effect["elements"] else f"{effect['tensor']} did not change at {fired.where}"
