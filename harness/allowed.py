"""What the guarantees demand of a plan: derived from what its faults mean, not typed in by anybody.

A fault says what comes of it in sound training (``ends_launch``, ``findings``, ``may_vanish``, see
``harness.faults.base``). From these follows what a run may be expected to be:

    no fault                                      clean
    launches end, and restarts are left           recovers, after as many restarts as launches were ended
    launches end, and no restart is left          stops, with the culprit named
    something stays wrong and nothing fails       detected: one of the guarantees that the fault breaks is found broken,
                                                  where it breaks them, and nothing before, but for what another
                                                  fault breaks

Where a fault leaves it open which of them it is, each is allowed.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence

from harness.faults import Fault
from harness.faults.base import UNLIKE_THE_BASELINE, CollectiveFault, Finding
from harness.plan import Broken, Expect, Plan


def allowed(plan: Plan, vanished: Collection[int] = (), counted: Collection[int] = ()) -> tuple[Expect, ...]:
    """The outcomes of which one must be seen, the most likely first; never empty.

    Args:
        vanished: indices of the faults of which the records show that nothing came (``harness.vanished``).
        counted: indices of those whose rank the records tell by themselves (``harness.counted``).
    """
    if not plan.faults:
        return (Expect(outcome="clean"),)
    lasting = sorted(
        ((index, fault) for index, fault in enumerate(plan.faults) if fault.findings), key=lambda item: _moment(item[1])
    )
    found: list[Expect] = []
    for number, (index, fault) in enumerate(lasting, start=1):
        alone = _detected(plan, fault, is_counted=index in counted)
        found += alone
        for later, other in lasting[number:]:  # what it leaves wrong may be found sooner
            found += _both(alone, _detected(plan, other, is_counted=later in counted))
        if fault.may_end_it_first:
            found.append(_ended_by_it(plan))
        if _needs_the_end(fault) and not _ends_well(plan):
            found += _survives(plan)  # a job that stops has no final state to look at
        if not fault.may_vanish and index not in vanished:
            break  # what comes later may be hidden behind it
    else:
        found = [*_survives(plan), *found]
    return tuple(dict.fromkeys(found))


def first_lasting(faults: Sequence[Fault]) -> Fault | None:
    """The first fault that leaves something wrong; None if none does."""
    return min((fault for fault in faults if fault.findings), key=_moment, default=None)


def _moment(fault: Fault) -> tuple[int, int]:
    return fault.at.restart, 0 if fault.at.step is None else fault.at.step


def _survives(plan: Plan) -> Iterator[Expect]:
    """What may come of a plan that leaves nothing wrong behind."""
    sure = {fault.at.restart for fault in plan.faults if fault.ends_launch == "always"}
    open_ = {fault.at.restart for fault in plan.faults if fault.ends_launch == "maybe"} - sure
    if len(sure) <= plan.max_restarts:
        yield Expect(outcome="recovers", restarts=None if open_ else len(sure))
    if len(sure | open_) > plan.max_restarts:
        yield Expect(outcome="stops", restarts=plan.max_restarts)


def _ended_by_it(plan: Plan) -> Expect:
    """One more launch ends than those that are sure to."""
    restarts = len({fault.at.restart for fault in plan.faults if fault.ends_launch == "always"}) + 1
    is_left = restarts <= plan.max_restarts
    return (
        Expect(outcome="recovers", restarts=restarts)
        if is_left
        else Expect(outcome="stops", restarts=plan.max_restarts)
    )


def _needs_the_end(fault: Fault) -> bool:
    by_the_baseline = {finding.guarantee for finding in UNLIKE_THE_BASELINE}
    return all(finding.guarantee in by_the_baseline for finding in fault.findings)


def _ends_well(plan: Plan) -> bool:
    return all(outcome.outcome != "stops" for outcome in _survives(plan))


def _detected(plan: Plan, fault: Fault, *, is_counted: bool) -> list[Expect]:
    """One for each of its findings."""
    return [
        Expect(outcome="detected", broken=(_broken(plan, fault, finding, is_counted=is_counted),))
        for finding in fault.findings
    ]


def _both(some: Sequence[Expect], others: Sequence[Expect]) -> Iterator[Expect]:
    """One of each; a guarantee that breaks twice tells of the first."""
    for one, other in itertools.product(some, others):
        if one.broken[0].guarantee != other.broken[0].guarantee:
            yield Expect(outcome="detected", broken=(*one.broken, *other.broken))


def _broken(plan: Plan, fault: Fault, finding: Finding, *, is_counted: bool) -> Broken:
    targets = fault.targets(plan.ranks)
    is_one = len(targets) == 1 and plan.ranks > 1
    # Between two ranks that start again nothing else may tell: DDP lays its buckets out anew.
    is_told = is_counted or not (isinstance(fault, CollectiveFault) and plan.ranks == 2 and fault.at.restart > 0)
    return Broken(
        guarantee=finding.guarantee,
        rank=targets[0] if finding.names_rank and is_one and is_told else None,
        step=fault.at.step if finding.names_step else None,
    )
