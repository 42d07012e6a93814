"""A buffer of one rank drifts away."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from harness.faults.base import UNLIKE_THE_BASELINE, Finding
from harness.faults.work import Work, WorkFault, WorkPlace, not_changed
from harness.wire import Event


@dataclass(frozen=True, kw_only=True)
class DriftBuffer(WorkFault):
    """After the update ``amount`` is added to each element of a floating-point buffer, such as a running mean.

    DDP hands out the buffers of rank 0 before each forward pass, unless the script says otherwise: there a drift of
    another rank is gone by the next update, and one of rank 0 is everybody's.

    Attributes:
        amount: what is added.
        name: the buffer's name, such as 1.running_mean; left out: the first floating-point one.
    """

    certifies: ClassVar = (
        "a drifting buffer of rank 0 is found, with its first update; DDP overwrites those of other ranks"
    )
    does_not_certify: ClassVar = "anything of buffers that DDP does not hand out: those of healthy ranks may differ"
    at_stake: ClassVar = ("EndsLikeBaseline", "ReplayIdentical")
    acts_in: ClassVar[WorkPlace] = "optimizer_step"
    drawn: ClassVar = {"amount": (0.5, -1.0)}
    needs: ClassVar = frozenset({"buffers"})

    kind: Literal["drift_buffer"] = "drift_buffer"
    amount: float = 1.0
    name: str | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(replace(finding, names_step=False) for finding in UNLIKE_THE_BASELINE)

    @property
    def may_vanish(self) -> bool:
        return self.rank not in (0, "all") and not (isinstance(self.rank, list) and 0 in self.rank)

    def problems(self) -> list[tuple[str, str]]:
        found = []
        if not math.isfinite(self.amount) or self.amount == 0:
            found.append(("amount", "must be a finite number other than 0"))
        if self.name is not None and not self.name.strip():
            found.append(("name", "must not be empty; leave it out for the first floating-point buffer"))
        return found

    def replace(self, work: Work) -> Any:
        result = work.do()
        work.add_to_buffer(self.name, self.amount)
        return result

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        return not_changed(fired, after)
