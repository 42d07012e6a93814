"""The scenario file: what may stand in it, and its one loader. Pydantic stays in this package.

In the order of a file's way through it:

    load         a file to a Scenario, or all of its problems at once
    effects      the fields that say where the side effects of a job are
    gradient     the fields that say what the losses are, and which updates are looked at
    metric       the fields that say what evaluation reports, and what is true
    model        the fields, their types, defaults and bounds
    saver        the fields of a scenario of a save function and every crash that can meet it
    mend         something right in the place of what is wrong, so that the rest can be judged
    rules        what fields must fulfil together
    saves        when there is a checkpoint: the rules for faults that act on one, or on the way to one
    workloads    from a workload's name to its script
    wording      what is wrong, what is allowed, the nearest known name
    toml_lines   on which line a field stands
    schema       the JSON Schema that editors use
"""

from harness.scenario.effects import Effect
from harness.scenario.gradient import Gradient
from harness.scenario.load import is_saver_scenario, load_saver_scenario, load_scenario
from harness.scenario.metric import Metric
from harness.scenario.model import Broken, Device, Expect, Expected, Scenario
from harness.scenario.saver import ExpectStates, SaverScenario

__all__ = [
    "Broken",
    "Device",
    "Effect",
    "Expect",
    "ExpectStates",
    "Expected",
    "Gradient",
    "Metric",
    "SaverScenario",
    "Scenario",
    "is_saver_scenario",
    "load_saver_scenario",
    "load_scenario",
]
