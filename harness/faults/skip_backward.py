"""A rank does not go backward once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from harness.faults.base import UNLIKE_THE_BASELINE, Finding
from harness.faults.work import LeavesOut, WorkPlace
from harness.wire import Kind


@dataclass(frozen=True, kw_only=True)
class SkipBackward(LeavesOut):
    """The rank's ``backward()`` does nothing: it has no gradients, and what DDP sends meanwhile is missing.

    The update that follows works on what gradients there are: none, or those of the step before.
    """

    certifies: ClassVar = "gradients that are never sent are found, with rank, step and operation"
    does_not_certify: ClassVar = (
        "anything of a script that reduces its gradients after backward: it sends none, or old ones, in due form"
    )
    at_stake: ClassVar = ("CollectivesAgree", "EndsLikeBaseline", "ReplayIdentical")
    acts_in: ClassVar[WorkPlace] = "backward"
    kind_of_it: ClassVar = Kind.COLLECTIVE
    may_be_masked: ClassVar = True  # of a micro-batch without targets there is no gradient

    kind: Literal["skip_backward"] = "skip_backward"

    @property
    def findings(self) -> tuple[Finding, ...]:
        sent = Finding(guarantee="CollectivesAgree", names_rank=True, names_step=True)
        return (sent, *UNLIKE_THE_BASELINE)  # the latter in a window of no_sync(), where nothing is sent

    @property
    def may_end_it_first(self) -> bool:
        return True  # a gradient scaler refuses to unscale what is not there
