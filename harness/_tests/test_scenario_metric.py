"""The [metric] table of a scenario: what evaluation reports, and what is true of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.errors import RecordError, ScenarioError
from harness.plan import load_plan, make_plan, write_plan
from harness.scenario import Metric, load_scenario
from harness.wire import PLAN_JSON

TEXT = """\
workload = "sharded_evaluation"
[metric]
{metric}
[expect]
outcome = "clean"
"""
GOOD = 'reported = "accuracy ([0-9.]+)"\nreference = "metrics/accuracy.py"'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "accuracy.py").touch()
    return tmp_path


def write(folder: Path, metric: str) -> Path:
    path = folder / "s.toml"
    path.write_text(TEXT.format(metric=metric))
    return path


def test_the_reference_is_found_from_the_scenarios_folder_and_stands_in_the_plan(folder: Path) -> None:
    plan = make_plan(load_scenario(write(folder, GOOD)), device="cpu")
    assert plan.metric == Metric(
        reported="accuracy ([0-9.]+)", reference=str((folder / "metrics" / "accuracy.py").resolve())
    )
    write_plan(plan, folder)
    assert load_plan(folder).metric == plan.metric


def test_without_one_the_plan_has_none(folder: Path) -> None:
    path = folder / "s.toml"
    path.write_text('workload = "ddp_mlp"\n[expect]\noutcome = "clean"\n')
    plan = make_plan(load_scenario(path), device="cpu")
    write_plan(plan, folder)
    assert load_plan(folder).metric is plan.metric is None


PROBLEMS = {
    "no regular expression": (GOOD.replace("([0", "[([0"), "s.toml:3: metric.reported: ", "is no regular expression: "),
    "no group": (GOOD.replace("([0-9.]+)", "[0-9.]+"), "s.toml:3: metric.reported: ", "must have one group, around"),
    "two groups": (GOOD.replace("([0-9.]+)", "(a) ([0-9.]+)"), "s.toml:3: metric.reported: ", "and has 2"),
    "no file": (GOOD.replace("accuracy.py", "f1.py"), "s.toml:4: metric.reference: ", "there is no file"),
    "no reference": (GOOD.splitlines()[0], "s.toml:2: metric.reference: ", "missing: path of a Python file"),
    "an unknown field": (f"{GOOD}\nreport = 'a'", "s.toml:5: metric.report: ", "did you mean 'reported'?"),
    "a number": (GOOD.replace('"metrics/accuracy.py"', "3"), "s.toml:4: metric.reference: 3: ", "a string"),
}


@pytest.mark.parametrize(("metric", "place", "said"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_wrong_one_is_one_problem(folder: Path, metric: str, place: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(write(folder, metric))
    (problem,) = caught.value.problems
    assert place in problem
    assert said in problem


@pytest.mark.parametrize(
    "metric", [{"reported": "([0-9", "reference": "a"}, {"reported": 1, "reference": "a"}, {"reported": "(a)"}, 3]
)
def test_a_damaged_one_in_a_plan_is_refused(folder: Path, metric: object) -> None:
    write_plan(make_plan(load_scenario(write(folder, GOOD)), device="cpu"), folder)
    raw = json.loads((folder / PLAN_JSON).read_text())
    (folder / PLAN_JSON).write_text(json.dumps(raw | {"metric": metric}))
    with pytest.raises(RecordError, match="no readable plan"):
        load_plan(folder)
