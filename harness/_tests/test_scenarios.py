"""The scenario files of this repository, their README, and scripts that a scenario can do little with."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from harness.crashstates.verdict import VERDICTS
from harness.expect import Judgement
from harness.faults import KINDS, At, Fault
from harness.plan import make_plan
from harness.run import Session
from harness.scenario import Scenario, is_saver_scenario, load_saver_scenario, load_scenario
from harness.scenario.model import Expected
from harness.scenario.saves import SAVE_FAILPOINTS
from harness.wire import GUARANTEE_NAMES, PHASES

SCENARIOS = Path(__file__).parents[2] / "scenarios"
SAVER_FILES, FILES = (
    [f for f in sorted(SCENARIOS.rglob("*.toml")) if is_saver_scenario(f) is b] for b in (True, False)
)
README = (SCENARIOS / "README.md").read_text()
MIN_COUNT = 28
DISARMED_S = 100.0


@cache
def loaded() -> dict[str, Scenario]:
    """Path below scenarios/ -> the scenario; fails with every problem of a file that is none."""
    return {file.relative_to(SCENARIOS).as_posix(): load_scenario(file) for file in FILES}


# -- the files -----------------------------------------------------------------------------------------------------


def test_there_are_enough_and_each_folder_has_some() -> None:
    assert len(loaded()) >= MIN_COUNT
    assert Counter(name.partition("/")[0] for name in loaded()).keys() == {"smoke", "regression", "user_script"}


@pytest.mark.parametrize("file", [*FILES, *SAVER_FILES], ids=lambda file: file.relative_to(SCENARIOS).as_posix())
def test_it_says_why_it_exists_and_what_must_come_of_it(file: Path) -> None:
    title = (load_saver_scenario if file in SAVER_FILES else load_scenario)(file).title
    assert file.read_text().startswith("# ")
    assert re.fullmatch(r"[A-Za-z].{38,118}[^.\s]", title), f"a sentence without its full stop, not {title!r}"
    assert len(title.split()) >= 8


def test_names_and_titles_are_unique() -> None:
    titles = [scenario.title for scenario in loaded().values()] + [load_saver_scenario(f).title for f in SAVER_FILES]
    for names in ([file.stem for file in (*FILES, *SAVER_FILES)], titles):
        assert [name for name, count in Counter(names).items() if count > 1] == []


def test_every_kind_of_fault_and_every_outcome_is_used() -> None:
    assert {fault.kind for scenario in loaded().values() for fault in scenario.faults} == KINDS.keys()
    assert {scenario.expect.outcome for scenario in loaded().values()} == {*get_args(Expected)}


def test_both_launchers_both_devices_and_more_than_two_ranks_are_used() -> None:
    assert {scenario.launcher for scenario in loaded().values()} == {"warm", "torchrun"}
    assert {device for scenario in loaded().values() for device in scenario.devices} == {"cpu", "gpu"}
    assert max(scenario.ranks for scenario in loaded().values()) >= 4


@pytest.mark.slow
def test_without_its_faults_no_smoke_scenario_passes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", str(SCENARIOS / "smoke"), "--disarm", "-m", "not gpu"]
    command += ["--chaos-store", str(tmp_path), "-p", "no:cacheprovider"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DISARMED_S, cwd=SCENARIOS.parent)
    (report,) = tmp_path.glob("runs/*/report.json")
    results = json.loads(report.read_text())["results"]
    assert {result["outcome"] for result in results} == {"unknown"}, done.stdout
    assert all(result["headline"].startswith("FaultFired is unknown") for result in results)
    assert len(results) == sum("cpu" in s.devices for name, s in loaded().items() if name.startswith("smoke/"))
    assert done.returncode == pytest.ExitCode.TESTS_FAILED


# -- the README ----------------------------------------------------------------------------------------------------


def kind_row(name: str, kind: type[Fault]) -> str:
    """What it does (the first sentence of its docstring), what a pass says and does not, and what is at stake."""
    does = " ".join(inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].split()).replace("``", "`")
    stake = " ".join(f"`{guarantee}`" for guarantee in kind.at_stake)
    cells = (f"`{name}`", does.split(". ")[0].rstrip("."), kind.certifies, kind.does_not_certify, stake)
    return f"| {' | '.join(cells)} |"


def settings_row(name: str, kind: type[Fault]) -> str:
    shared = {field.name for field in fields(Fault)}
    own = [f for f in fields(kind) if f.name not in shared]
    settings = [f.name if f.default is MISSING else f"{f.name} = {json.dumps(f.default)}" for f in own]
    told = " ".join(f"`{setting}`" for setting in settings)
    places = " ".join(f"`{place}`" for place in sorted(kind.places))
    return f"| `{name}` | {told} | {places} |"


def failpoint_row(name: str) -> str:
    point = SAVE_FAILPOINTS[name]
    writer = "every rank" if point.writer == "every" else "rank 0"
    return f"| `{name}` | {writer} | {'yes' if point.torn else ''} | {point.doc} |"


@pytest.mark.parametrize("name", KINDS)
def test_the_readme_tells_of_the_fault(name: str) -> None:
    assert kind_row(name, KINDS[name]) in README.splitlines()
    assert settings_row(name, KINDS[name]) in README.splitlines()


@pytest.mark.parametrize("name", SAVE_FAILPOINTS)
def test_the_readme_tells_of_the_failpoint(name: str) -> None:
    assert failpoint_row(name) in README.splitlines()


def test_the_readme_tells_of_no_fault_and_no_failpoint_that_is_gone() -> None:
    first_cells = re.findall(r"^\| `([\w.]+)` \|", README, re.MULTILINE)
    places = {"at"} | {field.name for field in fields(At)}
    assert {*first_cells} == {*KINDS, *SAVE_FAILPOINTS, *get_args(Expected)} | places


@pytest.mark.parametrize("name", KINDS)
def test_what_a_fault_breaks_by_itself_is_at_stake(name: str) -> None:
    """Whichever of its settings, and whoever is its target."""
    kind, required = KINDS[name], {"numel": 1, "duration_s": 0.1, "factor": 2.0, "file": "model.pt", "dtype": "int64"}
    given = {field.name: required[field.name] for field in fields(kind) if field.name in required}
    hints = get_type_hints(kind)
    choices = [(n, value) for n, hint in hints.items() if get_origin(hint) is Literal for value in get_args(hint)]
    for setting, value in choices:
        for rank in (0, 1, "all"):
            fault = kind(**{**given, "kind": name, "rank": rank, "at": At(step=3), setting: value})
            assert {finding.guarantee for finding in fault.findings} <= {*kind.at_stake}
    assert {*kind.at_stake} <= {*GUARANTEE_NAMES}


def test_the_readme_names_every_guarantee_and_phase() -> None:
    assert [name for name in (*GUARANTEE_NAMES, *PHASES) if f"`{name}`" not in README] == []


def test_the_files_that_the_readme_names_are_there() -> None:
    named = re.findall(r"(?:regression|user_script)/\w+\.\w+", README)
    assert named
    assert [name for name in named if not (SCENARIOS / name).is_file()] == []


def test_the_scenarios_of_the_readme_are_right(tmp_path: Path) -> None:
    text, *tables, of_a_saver = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    file = tmp_path / "of_the_readme.toml"
    file.write_text(text)
    assert load_scenario(file).expect.outcome == "recovers"
    (tmp_path / "losses.py").touch()
    for table in tables:
        file.write_text(f"{text}\n{table}")
        assert load_scenario(file).expect.outcome == "recovers"
    (tmp_path / "saver.py").touch()
    file.write_text(of_a_saver.replace("../saver.py", "saver.py"))
    assert load_saver_scenario(file).expect.verdicts == ("lost-ack",)
    meanings = README.partition("| verdict of a state |")[2]
    assert [verdict for verdict in VERDICTS if verdict != "not-triggered" and f"`{verdict}`" not in meanings] == []


# -- scripts that little can be done with --------------------------------------------------------------------------

LOOP = """
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
"""
ALIKE = "import torch\ntorch.manual_seed(0)\n"
EACH_BY_ITSELF = "import os, torch\ntorch.manual_seed(int(os.environ['RANK']))\n"
KILL = '[[fault]]\nkind = "kill"\nrank = 1\nat = { step = 5, phase = "backward" }\n'
SKIP = '[[fault]]\nkind = "skip_collective"\nrank = 1\nat = { collective = 1 }\n'
CLEAN = '[expect]\noutcome = "clean"\n'
STOPS = '[expect]\noutcome = "stops"\n'


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    place = tmp_path_factory.mktemp("chaos")
    with Session(place / "store", place / "runs") as session:
        yield session


def judged(session: Session, place: Path, script: str, scenario: str) -> Judgement:
    (place / "script.py").write_text(script)
    file = place / "scenario.toml"
    file.write_text(f'workload = "script.py"\ncollective_timeout_s = 3.0\ndeadline_s = 20.0\n{scenario}')
    return session.run(make_plan(load_scenario(file), device="cpu")).judgement


@pytest.mark.parametrize(
    ("script", "scenario", "outcome", "says"),
    [
        pytest.param(ALIKE + LOOP, CLEAN, "passed", "clean", id="never joins a group, and its ranks stay alike"),
        pytest.param(EACH_BY_ITSELF + LOOP, CLEAN, "failed", "ReplicasAgree is broken", id="never joins, and parts"),
        pytest.param("print('done')", CLEAN, "unknown", "no update and no collective", id="does nothing at all"),
        pytest.param(ALIKE + LOOP, KILL + STOPS, "unknown", "exit code 0, in step 3", id="ends before its fault"),
        pytest.param(ALIKE + LOOP, SKIP + STOPS, "unknown", "exit code 0, in step 3", id="sends nothing to leave out"),
        pytest.param("import no_such_module", CLEAN, "failed", "exit code is 1", id="cannot be imported"),
        pytest.param("def broken(:", CLEAN, "failed", "exit code is 1", id="is no Python"),
    ],
)
def test_a_script_of_which_little_can_be_said(
    session: Session, tmp_path: Path, script: str, scenario: str, outcome: str, says: str
) -> None:
    judgement = judged(session, tmp_path, script, scenario)
    assert judgement.outcome == outcome
    assert says in judgement.headline


def test_a_script_without_a_group_says_nothing_of_collectives(session: Session, tmp_path: Path) -> None:
    judgement = judged(session, tmp_path, ALIKE + LOOP, CLEAN)
    verdicts = {verdict.guarantee: verdict for verdict in judgement.verdicts}
    assert verdicts["CollectivesAgree"].outcome == "not-applicable"
    assert verdicts["ReplicasAgree"].outcome == "valid"


def test_a_script_that_cannot_be_imported_is_named_with_its_line(session: Session, tmp_path: Path) -> None:
    (cause,) = judged(session, tmp_path, "import torch\nimport no_such_module", CLEAN).diagnosis
    assert "No module named 'no_such_module'" in cause.detail
    assert f"{tmp_path}{os.sep}script.py:2" in cause.detail
