"""A rank is given the same batch twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from harness.faults.base import UNLIKE_THE_BASELINE, Finding, effect_of
from harness.faults.batch import BatchFault, Reading
from harness.wire import Event, Kind


@dataclass(frozen=True, kw_only=True)
class RepeatBatch(BatchFault):
    """The batch before is handed out again, and the one that was read in its place is thrown away: its samples are
    lost, and the epoch has as many batches as ever. The first batch of a pass has none before it."""

    certifies: ClassVar = (
        "samples that are used twice, and those that are lost for them, are named: rank, update and ids"
    )
    does_not_certify: ClassVar = "anything of data sets that are not read by index: their samples have no ids"
    at_stake: ClassVar = ("SamplesOnce", "ReplayIdentical")

    kind: Literal["repeat_batch"] = "repeat_batch"

    @property
    def findings(self) -> tuple[Finding, ...]:
        # The latter where the update is made again, as it should have been.
        return (Finding(guarantee="SamplesOnce", names_rank=True, names_step=True), UNLIKE_THE_BASELINE[1])

    def read(self, reading: Reading) -> Any:
        return reading.previous()

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        effect = effect_of(fired, after)
        if effect is None or not effect["is_repeated"]:
            return f"there was no batch before the one at {fired.where}: the first of a pass cannot repeat one"
        given = next((event for event in after if event.kind == Kind.BATCH), None)
        if given is None or given.data["ids"] != effect["repeated"]:
            return f"the batch handed out after {fired.where} is not the one before it"
        return None
