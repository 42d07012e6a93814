"""Plans that did not pass for one cause: the smallest file of it is kept, and how often else it was found is counted.

One bug may break several guarantees, and which is named first depends on where the fault hits. Two findings are of one
cause if their smallest plans have the same faults in the same phases of the same workload, and each of the two runs
also breaks the guarantee that the other is named by. With less in common each keeps its file: a bug would be hidden.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from harness.chaos.finding import Found
from harness.chaos.trial import TOLD_BY_REASON, Trial


def folded(found: Iterable[Found], trials: Sequence[Trial]) -> list[Found]:
    """By plan number; of each cause one keeps its file and names all others that it was found by.

    Args:
        trials: of the night.
    """
    kept: list[Found] = []
    same: dict[int, list[Found]] = {}  # plan of one that is kept -> those of its cause, itself too
    for one in sorted(found, key=_size):
        first = next((known for known in kept if has_same_cause(one, known)), one)
        if first is one:
            kept.append(one)
        same.setdefault(first.trial.number, []).append(one)
    told = []
    for number, alike in same.items():
        ways = {one.trial.way for one in alike}
        others = tuple(sorted({trial.number for trial in trials if trial.way in ways} - {number}))
        told += [replace(one, same_as=number) for one in alike[1:]] + [replace(alike[0], others=others)]
    return sorted(told, key=lambda one: one.trial.number)


def has_same_cause(one: Found, other: Found) -> bool:
    """See the module; False if the file of one of them does not fail in the same way, or none was written."""
    mine, its = one.replayed, other.replayed
    if mine is None or its is None or not (one.is_reproduced and other.is_reproduced):
        return False
    if (mine.outcome, its.outcome) != ("failed", "failed") or not (mine.blamed and its.blamed):
        return False
    if {mine.blamed[0], its.blamed[0]} & {*TOLD_BY_REASON}:
        return False
    return _faults(mine) == _faults(its) and mine.blamed[0] in its.blamed and its.blamed[0] in mine.blamed


def _faults(trial: Trial) -> tuple[Any, ...]:
    """What they do where; not in which update, nor to which rank."""
    scenario = trial.scenario
    assert scenario is not None, "it was read from a file"
    known = [phase for _, phase, _ in trial.places]
    phases = known or [f.at.phase or f.at.failpoint or "" for f in scenario.faults]
    faults = zip(scenario.faults, phases, strict=True)
    return scenario.workload, tuple((fault.kind, fault.at.restart, phase) for fault, phase in faults)


def _size(found: Found) -> tuple[int, int, int, int]:
    scenario = None if found.replayed is None else found.replayed.scenario
    ranks, steps = (0, 0) if scenario is None else (scenario.ranks, scenario.steps)
    return found.num_faults, ranks, steps, found.trial.number
