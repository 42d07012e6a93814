"""A failing plan, made smaller while it fails in the same way: what is left is what it takes.

First fewer faults: none, each alone, a plain kill alone in place of each that ends a launch, each pair, all but one.
Then, in the order of what a reader gains: fewer ranks, restarts, updates; an earlier place; one target; plain settings.
The first that still fails is taken, and the same are tried again from there; at the end fewer faults once more, which a
smaller job may need.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from harness.chaos.job import changed
from harness.faults import At, Fault
from harness.faults.base import Target
from harness.faults.kill import Kill
from harness.scenario import Scenario
from harness.scenario.rules import problems


def shrink(
    scenario: Scenario, still_fails: Callable[[Scenario], bool], has_time: Callable[[], bool] = lambda: True
) -> Scenario:
    """The smallest scenario found that ``still_fails``.

    Args:
        still_fails: runs it; never asked twice about the same one.
        has_time: asked before each run.
    """
    tried = {_key(scenario)}
    smallest, before = scenario, None
    while smallest is not before:
        before = smallest
        for candidates in (fewer_faults, plainer):
            while (found := _first(candidates(smallest), tried, still_fails, has_time)) is not None:
                smallest = found
    return smallest


def _first(
    candidates: Iterator[Scenario],
    tried: set[str],
    still_fails: Callable[[Scenario], bool],
    has_time: Callable[[], bool],
) -> Scenario | None:
    """The first that may be run, was not, and still fails; None if there is none, or no time."""
    for candidate in candidates:
        key = _key(candidate)
        if key in tried or problems(candidate):
            continue
        if not has_time():
            return None
        tried.add(key)
        if still_fails(candidate):
            return candidate
    return None


def fewer_faults(scenario: Scenario) -> Iterator[Scenario]:
    """With fewer faults, the fewest first."""
    faults = scenario.faults
    if faults:  # what is wrong may be so without any
        yield _with(scenario, [])
    if len(faults) > 1:
        yield from (_with(scenario, [fault]) for fault in faults)
        yield from (_with(scenario, [kill]) for kill in _kills(scenario))
    for num_left in sorted({2, len(faults) - 1}):
        if 1 < num_left < len(faults):
            yield from (_with(scenario, left) for left in combinations(faults, num_left))


def _kills(scenario: Scenario) -> Iterator[Fault]:
    """What ends a launch may matter less than that it is ended."""
    for fault in scenario.faults:
        if fault.ends_launch != "never":
            step = min(fault.at.step or scenario.steps, scenario.steps)
            yield Kill(rank=fault.targets(scenario.ranks)[-1], at=At(step=step, phase="backward"))


def plainer(scenario: Scenario) -> Iterator[Scenario]:
    """With the same faults, a step smaller."""
    faults = scenario.faults
    for ranks in range(2, scenario.ranks):
        yield changed(scenario, ranks=ranks, fault=tuple(_within(fault, ranks) for fault in faults))
    for max_restarts in range(scenario.max_restarts):
        yield changed(scenario, max_restarts=max_restarts)
    last = max((fault.at.step or 1 for fault in faults), default=1)
    for steps in sorted({last, last + 1, (scenario.steps + last) // 2}):
        if steps < scenario.steps and scenario.planned_steps is not None:
            yield changed(scenario, steps=steps)
    for n, fault in enumerate(faults):
        for simpler in _simpler(fault, scenario):
            yield changed(scenario, fault=(*faults[:n], simpler, *faults[n + 1 :]))


def _simpler(fault: Fault, scenario: Scenario) -> Iterator[Fault]:
    at = fault.at
    if at.step is not None:
        places = sorted({1, 2, scenario.save_every, at.step // 2, at.step - scenario.save_every, at.step - 1})
        yield from (replace(fault, at=replace(at, step=step)) for step in places if 1 <= step < at.step)
    if at.epoch:
        yield replace(fault, at=replace(at, epoch=0))
    if at.collective is not None and at.collective > 1:
        yield replace(fault, at=replace(at, collective=1))
    if not isinstance(fault.rank, int):
        yield from (replace(fault, rank=rank) for rank in fault.targets(scenario.ranks))
    for setting in dataclasses.fields(fault):
        plain = setting.default
        if setting.name not in ("kind", "rank", "at") and plain not in (
            dataclasses.MISSING,
            getattr(fault, setting.name),
        ):
            yield replace(fault, **{setting.name: plain})


def _with(scenario: Scenario, faults: Sequence[Fault]) -> Scenario:
    """The scenario with these faults alone, at the restarts that are left when those between them do not happen."""
    ends = sorted({fault.at.restart for fault in faults if fault.ends_launch != "never"})
    moved = [replace(f, at=replace(f.at, restart=sum(end < f.at.restart for end in ends))) for f in faults]
    return changed(scenario, fault=tuple(moved))


def _within(fault: Fault, ranks: int) -> Fault:
    rank: Target = fault.rank
    match rank:
        case int():
            rank = min(rank, ranks - 1)
        case list():
            rank = sorted({min(r, ranks - 1) for r in rank})
    return replace(fault, rank=rank)


def _key(scenario: Scenario) -> str:
    return repr(scenario)
