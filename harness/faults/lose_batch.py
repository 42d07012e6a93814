"""A rank never sees one of its batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from harness.faults.base import UNLIKE_THE_BASELINE, Ends, Finding, effect_of
from harness.faults.batch import BatchFault, Reading
from harness.wire import Event, Kind


@dataclass(frozen=True, kw_only=True)
class LoseBatch(BatchFault):
    """The batch is thrown away and the next one handed out in its place, so that the epoch has one fewer."""

    certifies: ClassVar = "samples that are lost are named: rank, update and ids"
    does_not_certify: ClassVar = "anything of data sets that are not read by index: their samples have no ids"
    at_stake: ClassVar = ("SamplesOnce", "ReplayIdentical", "LoadersAgree")

    kind: Literal["lose_batch"] = "lose_batch"

    @property
    def ends_launch(self) -> Ends:
        return "maybe"  # its epoch is one batch shorter than that of the others

    @property
    def findings(self) -> tuple[Finding, ...]:
        return (
            Finding(guarantee="SamplesOnce", names_rank=True, names_step=True),
            UNLIKE_THE_BASELINE[1],  # where the update is made again, as it should have been
            Finding(guarantee="LoadersAgree", names_rank=True),  # where no batch comes after it
        )

    def read(self, reading: Reading) -> Any:
        return reading.next()

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        effect = effect_of(fired, after)
        if effect is None:
            return f"nothing is on record of a batch that was lost at {fired.where}"
        then = next((event for event in after if event.kind in (Kind.BATCH, Kind.LOADER_END)), None)
        if then is None:
            return f"neither a batch nor the loader's end came after {fired.where}"
        if then.kind == Kind.BATCH and effect["lost"] is not None and then.data["ids"] == effect["lost"]:
            return f"the batch that should be lost was handed out at {then.where}"
        return None
