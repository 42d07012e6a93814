"""Do all ranks issue the same collectives?"""

from __future__ import annotations

from harness.checks.base import Verdict, guarantee, invalid, not_applicable, valid
from harness.checks.collectives import first_deviation
from harness.checks.diagnosis import first_cause
from harness.checks.records import failed_restarts, listed
from harness.checks.sent import describe, sent_by_group
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
    count = history.count(Kind.COLLECTIVE)
    if count == 0:
        return not_applicable("no collective is on record")
    for restart in range(history.restarts + 1):
        deviation = first_deviation(history, restart, baseline)
        if deviation is None:
            if verdict := _left_while_others_went_on(history, restart, baseline):
                return verdict
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


def _left_while_others_went_on(history: History, restart: int, baseline: Baseline | None) -> Verdict | None:
    """A rank that came to the end of its script, as if all were done, in a launch that failed for want of it."""
    if restart not in failed_restarts(history):
        return None
    cause = first_cause(history, restart, baseline)
    was_told_to = any(e.restart == restart and e.rank == cause.rank for e in history.of(Kind.FAULT))
    if cause.rank is None or cause.how != "exit" or cause.exit_code not in (0, None) or was_told_to:
        return None
    for group, sent in sent_by_group(history, restart).items():
        mine = sent.get(cause.rank, [])
        longest = max(sent.values(), key=len, default=[])
        if len(mine) < len(longest):
            missed = longest[len(mine)]
            return invalid(
                f"rank {cause.rank} {cause.detail}, and the others went on: {describe(missed)}, call "
                f"{len(mine) + 1} of group {group}",
                cause.event,
                step=missed.step,
                operation=missed.data["op"],
                seen={"how": "skipped", "ranks": [cause.rank], "call": len(mine) + 1},
            )
    return None
