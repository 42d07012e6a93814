"""A planted bug that every night must find: one that finds nothing else is only believed if it found this."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from random import Random

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
        if scenario.expect.outcome == "detected" and is_plain and is_killed and is_named:
            found[file.stem] = scenario
    if not found:
        raise HarnessError("no planted bug can serve as a canary: run from a checkout, or install `workloads`")
    return found


def draw_canary(seed: int, shard: int = 1) -> Scenario:
    """The canary of a night: its expectation is derived from its faults as that of every other plan is."""
    candidates = canaries()
    name = Random(f"canary {seed} {shard}").choice(sorted(candidates))
    scenario = candidates[name]
    fields = {
        field: getattr(scenario, field) for field in scenario.model_fields_set - {"faults", "expect", "guarantees"}
    }
    fields |= {"title": f"canary: {name}", "fault": scenario.faults}
    return Scenario(**fields, expect=Expect(outcome="guaranteed"))
