"""Do all ranks issue the same collectives?"""

from __future__ import annotations

from harness.checks.base import Verdict, guarantee, invalid, not_applicable, valid
from harness.checks.collectives import first_deviation
from harness.checks.records import listed
from harness.history import Baseline, History
from harness.wire import Kind

_SAID = {
    "skipped": "left it out",
    "extra": "put it in",
    "swapped": "issued it in another order",
    "mismatch": "issued something else",
}


@guarantee(
    "CollectivesAgree",
    "every rank issues the same collectives in the same order, with equal shapes, types and reduce operations",
)
def collectives_agree(history: History, baseline: Baseline | None) -> Verdict:
    """Unknown is never the answer here: a true tie between ranks is broken too, with nobody named."""
    count = len(history.of(Kind.COLLECTIVE))
    if count == 0:
        return not_applicable("no collective is on record")
    for restart in range(history.restarts + 1):
        deviation = first_deviation(history, restart, baseline)
        if deviation is None:
            continue
        if deviation.rank is None:
            who = "the ranks differ, and nothing on record tells who is wrong"
        else:
            who = f"{listed(deviation.ranks)} {_SAID[deviation.how]}"
        return invalid(
            f"{who}: {deviation.operation}, call {deviation.call} of group {deviation.group}, step {deviation.step}, "
            f"{deviation.phase}",
            deviation.at,
            rank=deviation.rank,
            step=deviation.step,
            operation=deviation.operation,
            seen={"how": deviation.how, "ranks": list(deviation.ranks), "call": deviation.call, **deviation.sent},
        )
    return valid(f"{count} collectives agree")
