"""The family of faults that act on one batch, after a DataLoader has read it and before the script gets it.

What a batch is made of is the script's choice. Changed are its tensors: those in tuples, lists, named tuples, mappings,
and in the attributes of other objects; strings, numbers and numpy's arrays stay. The data set's own tensors stay too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from harness.faults.base import UNLIKE_THE_BASELINE, Fault, Finding, Level, effect_of
from harness.wire import Event, GuaranteeName, Kind


class Reading(Protocol):
    """One batch that was read, as a BatchFault sees it. What is done with it is measured and recorded."""

    @property
    def batch(self) -> Any:
        """What the loader gave."""

    def changed(self, edit: Callable[[Any], Any]) -> Any:
        """A copy of the batch in which each tensor is what ``edit`` returns for it."""

    def previous(self) -> Any:
        """The batch that the same pass handed out before; the batch itself if it is the first of its pass."""

    def next(self) -> Any:
        """The batch after this one, which is thrown away.

        Raises:
            StopIteration: it was the last one.
        """

    def tell(self, **measured: Any) -> None:
        """Record what was done."""


class BatchFault(Fault):
    """Acts on the first batch that matches; ``at.hit`` counts the micro-batches of an update, and what a resumed script
    reads and passes over. Once training has begun, only batches of the data sets that it trains on count."""

    level: ClassVar[Level] = "data"
    places: ClassVar = frozenset({"step", "epoch"})
    at_stake: ClassVar[tuple[GuaranteeName, ...]] = ("EndsLikeBaseline", "ReplayIdentical")

    @property
    def findings(self) -> tuple[Finding, ...]:
        return UNLIKE_THE_BASELINE

    def read(self, reading: Reading) -> Any:
        """What the script is given in place of the batch.

        Raises:
            StopIteration: nothing more in this pass.
        """
        raise NotImplementedError


def unchanged(fired: Event, after: Sequence[Event]) -> str | None:
    """None if values of the batch were changed and it was handed out, else what is missing."""
    effect = effect_of(fired, after)
    if effect is None:
        return f"nothing is on record of what became of the batch at {fired.where}"
    if not effect["elements"]:
        return f"no value of the batch changed at {fired.where}: it has {effect['tensors']} tensors that can be changed"
    return not_handed_out(fired, after)


def not_handed_out(fired: Event, after: Sequence[Event]) -> str | None:
    """None if the script was given a batch after the fault, else that it was not."""
    if any(event.kind == Kind.BATCH for event in after):
        return None
    return f"no batch was handed out after {fired.where}"
