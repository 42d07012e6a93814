"""A planted bug that every night must find: one that finds nothing else is only believed if it found this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from random import Random

from harness.chaos.trial import Trial
from harness.errors import HarnessError
from harness.mutants import planted_files
from harness.plan import Expect
from harness.scenario import Scenario, load_scenario
from harness.scenario.workloads import is_own_script


@cache
def canaries() -> Mapping[str, Scenario]:
    """Name -> scenario of each planted bug that shows when a rank is killed and the job resumes, by itself.

    Raises:
        HarnessError: the planted bugs are not installed.
    """
    found = {}
    for file in planted_files():
        scenario = load_scenario(file)
        is_plain = not (scenario.effects or scenario.metric or scenario.gradient or scenario.args or scenario.env)
        is_killed = [fault.kind for fault in scenario.faults] == ["kill"] and scenario.max_restarts > 0
        is_named = not is_own_script(scenario.workload)
        is_broken = all(broken.verdict == "invalid" for broken in scenario.expect.broken)
        if scenario.expect.outcome == "detected" and is_plain and is_killed and is_named and is_broken:
            found[file.stem] = scenario
    if not found:
        raise HarnessError("no planted bug can serve as a canary: run from a checkout, or install `workloads`")
    return found


@dataclass(frozen=True)
class Canary:
    """A planted bug, as it is run in a night.

    Attributes:
        guarantees: those of which one must be found broken.
    """

    scenario: Scenario
    guarantees: frozenset[str]

    def is_found_by(self, trial: Trial) -> bool:
        """Whether this run of it failed by the bug: on a machine that is too busy for anything all plans fail."""
        return trial.outcome == "failed" and not self.guarantees.isdisjoint(trial.blamed)


def draw_canary(seed: int, shard: int = 1) -> Canary:
    """The canary of a night: its expectation is derived from its faults as that of every other plan is."""
    candidates = canaries()
    name = Random(f"canary {seed} {shard}").choice(sorted(candidates))
    scenario = candidates[name]
    fields = {
        field: getattr(scenario, field) for field in scenario.model_fields_set - {"faults", "expect", "guarantees"}
    }
    fields |= {"title": f"canary: {name}", "fault": scenario.faults}
    guarantees = frozenset(broken.guarantee for broken in scenario.expect.broken)
    return Canary(Scenario(**fields, expect=Expect(outcome="guaranteed")), guarantees)
