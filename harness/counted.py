"""Faults whose rank tells on itself: the calls that it sent are not those that its script came back from."""

from __future__ import annotations

from harness.checks.sent import calls_by_group
from harness.checks.unsent import unasked_in, unsent_in
from harness.faults.base import CollectiveFault
from harness.history import History


def counted(history: History) -> frozenset[int]:
    """Indices of the faults in collectives of which the record of their one target, by itself, says that it parted.

    So it must be named even where the ranks' comparison with each other cannot tell which of them is wrong.
    """
    plan = history.plan
    return frozenset(
        index
        for index, fault in enumerate(plan.faults)
        if isinstance(fault, CollectiveFault)
        and len(targets := fault.targets(plan.ranks)) == 1
        and _miscounting(history, fault.at.restart) == {*targets}
    )


def _miscounting(history: History, restart: int) -> set[int]:
    found = set()
    for group in calls_by_group(history, restart):
        for one in (unsent_in(history, restart, group), unasked_in(history, restart, group)):
            if one is not None:
                found.add(one.rank)
    return found
