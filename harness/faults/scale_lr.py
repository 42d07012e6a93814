"""A rank makes one update with another learning rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from harness.faults.base import effect_of
from harness.faults.work import Work, WorkFault, WorkPlace
from harness.wire import Event, Kind


@dataclass(frozen=True, kw_only=True)
class ScaleLr(WorkFault):
    """The learning rates of all groups are multiplied for one update, and put back after it: a scheduler would undo a
    lasting change, or keep it, as it happens to compute.

    Attributes:
        factor: what they are multiplied by, at least 0.
    """

    certifies: ClassVar = (
        "a learning rate that one rank has alone is found, with the first update after which it parted"
    )
    does_not_certify: ClassVar = "that a schedule is the intended one: where all ranks have it, nothing differs"
    acts_in: ClassVar[WorkPlace] = "optimizer_step"
    drawn: ClassVar = {"factor": (0.0, 0.5, 2.0, 10.0)}

    kind: Literal["scale_lr"] = "scale_lr"
    factor: float

    def problems(self) -> list[tuple[str, str]]:
        if not 0 <= self.factor < math.inf:
            return [("factor", "must be a finite number, at least 0")]
        return [("factor", "must not be 1: it would change nothing")] if self.factor == 1 else []

    def replace(self, work: Work) -> Any:
        return work.do_at_lr(self.factor)

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        effect = effect_of(fired, after)
        if effect is None:
            return f"nothing is on record of a learning rate that was changed at {fired.where}"
        if effect["lr"] == effect["usual"]:
            return f"the learning rates at {fired.where} are {_numbers(effect['usual'])}: to scale them changes nothing"
        update = next((e for e in after if e.kind == Kind.UPDATE), None)
        if update is not None and update.data["lr"] != effect["lr"]:
            made, meant = _numbers(update.data["lr"]), _numbers(effect["lr"])
            return f"the update at {update.where} was made with {made}, not {meant}"
        return None


def _numbers(rates: Sequence[float]) -> str:
    return ", ".join(f"{rate:g}" for rate in rates)
