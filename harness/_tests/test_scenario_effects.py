"""The [[effect]] tables of a scenario: where the side effects of the job are."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import ScenarioError
from harness.plan import load_plan, make_plan, write_plan
from harness.scenario import Effect, load_scenario

TEXT = """\
workload = "sqlite_metrics"
[[effect]]
database = "{{checkpoints}}.sqlite"
table = "metrics"
key = ["run_id", "step"]
ignore = ["launch"]
[[effect]]
{second}
[expect]
outcome = "clean"
"""
METRICS = Effect(database="{checkpoints}.sqlite", table="metrics", key=("run_id", "step"), ignore=("launch",))


def write(tmp_path: Path, second: str) -> Path:
    path = tmp_path / "s.toml"
    path.write_text(TEXT.format(second=second))
    return path


def test_they_are_in_the_plan_and_come_back_from_its_file(tmp_path: Path) -> None:
    path = write(tmp_path, 'lines = "{run_dir}/m.jsonl"\nkey = ["global_step"]\nstep = "global_step"')
    plan = make_plan(load_scenario(path), device="cpu")
    write_plan(plan, tmp_path)
    second = Effect(lines="{run_dir}/m.jsonl", key=("global_step",), step="global_step")
    assert load_plan(tmp_path).effects == plan.effects == (METRICS, second)
    assert [effect.has_step for effect in plan.effects] == [True, True]


GOOD = 'lines = "{run_dir}/a"\nkey = ["a", "step"]'
PROBLEMS = {
    "no file at all": ('key = ["step"]', "s.toml:7: effect[1]: ", "give database, or lines"),
    "two files": (f'{GOOD}\ndatabase = "{{run_dir}}/b"\ntable = "t"', "s.toml:7: effect[1]: ", "database, or lines"),
    "a database without a table": (
        'database = "{run_dir}/b"\nkey = ["step"]',
        "s.toml:7: effect[1].table: ",
        "needs the name of its table",
    ),
    "lines with a table": (f'{GOOD}\ntable = "t"', 's.toml:10: effect[1].table: "t": ', "lines have none"),
    "a file that all runs share": (
        'lines = "/tmp/a"\nkey = ["step"]',
        's.toml:8: effect[1].lines: "/tmp/a": ',
        "must begin with {checkpoints} or {run_dir}",
    ),
    "no key": ('lines = "{run_dir}/a"', "s.toml:7: effect[1].key: ", "missing: the columns that name an effect"),
    "an empty key": ('lines = "{run_dir}/a"\nkey = []', "s.toml:9: effect[1].key: []: ", "at least one column"),
    "a key that is no list": ('lines = "{run_dir}/a"\nkey = "step"', "s.toml:9: effect[1].key: ", "must be a list"),
    "a number in the key": ('lines = "{run_dir}/a"\nkey = [1]', "s.toml:9: effect[1].key[0]: 1: ", "a string"),
    "a step that is not in the key": (f'{GOOD}\nstep = "s"', 'effect[1].step: "s": ', "allowed: a, step"),
    "a column that is key and ignored": (f'{GOOD}\nignore = ["a"]', "s.toml:10: effect[1].ignore", "names a twice"),
    "an unknown field": (f'{GOOD}\nignored = ["b"]', "s.toml:10: effect[1].ignored", "did you mean 'ignore'?"),
    "a field of the whole scenario": (f"{GOOD}\nranks = 3", "s.toml:10: effect[1].ranks", "above the first [[effect]]"),
}


@pytest.mark.parametrize(("second", "place", "said"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_wrong_one_is_one_problem(tmp_path: Path, second: str, place: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(write(tmp_path, second))
    (problem,) = caught.value.problems
    assert place in problem
    assert said in problem


def test_one_bracket_too_few_is_said(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('workload = "ddp_mlp"\n[effect]\nkey = ["step"]\n[expect]\noutcome = "clean"\n')
    with pytest.raises(ScenarioError, match=r"write \[\[effect\]\] with two brackets above each effect"):
        load_scenario(path)


def test_other_problems_of_the_file_are_told_beside_it(tmp_path: Path) -> None:
    path = write(tmp_path, 'key = ["step", 2]\nlines = 3')
    path.write_text(path.read_text().replace('"clean"', '"clear"').replace("sqlite_metrics", "sqlite_metric"))
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    assert [problem.split(": ")[1] for problem in caught.value.problems] == [
        "workload",
        "effect[1].key[1]",
        "effect[1].lines",
        "expect.outcome",
    ]
