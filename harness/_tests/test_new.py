"""``new``: what it writes runs as it is, and what is there already stays."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from harness.errors import ScenarioError
from harness.faults import KINDS
from harness.new import write_new
from harness.scenario import load_scenario
from harness.scenario.schema import schema_text
from harness.wire import GUARANTEE_NAMES, PHASES


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_writes_a_scenario_that_loads() -> None:
    scenario = load_scenario(write_new("first"))
    assert [fault.kind for fault in scenario.faults] == ["kill"]
    assert scenario.expect.outcome == "recovers"


def test_its_comments_name_all_there_is() -> None:
    comments = " ".join(write_new("first").read_text().replace("#  ", "").split())
    for names in (KINDS, PHASES, GUARANTEE_NAMES):
        assert ", ".join(names) in comments


def test_every_setting_that_is_commented_out_can_be_put_in() -> None:
    path = write_new("first")
    # Those of the fault's place exclude each other; each of the others takes its line's place.
    setting = re.compile(r"^# (?=(args|collective_timeout_s|deadline_s|guarantees) = )", re.MULTILINE)
    text = setting.sub("", path.read_text())
    path.write_text(text)
    assert load_scenario(path).guarantees == ("RollbackExact", "ReplayIdentical")
    for place in re.findall(r"^# at = (\{.*?\})", text, flags=re.MULTILINE):
        tomllib.loads(f"at = {place}")
        changed = text.replace('at = { step = 12, phase = "backward" }', f"at = {place}", 1)
        changed = changed.replace("max_restarts = 1", "max_restarts = 2")
        path.write_text(changed.replace('kind = "kill"', 'kind = "short_loader"') if "epoch" in place else changed)
        load_scenario(path)


NAMES = {
    "a bare name goes here": ("kill", "kill.toml"),
    "the suffix may be given": ("kill.toml", "kill.toml"),
    "a path is taken as it is, and its folders are made": ("my/smoke/kill", "my/smoke/kill.toml"),
    "a name with a dot keeps it": ("issue-1.2", "issue-1.2.toml"),
}


@pytest.mark.parametrize(("name", "path"), NAMES.values(), ids=NAMES)
def test_where_it_goes(name: str, path: str) -> None:
    assert write_new(name) == Path(path)
    assert Path(path).is_file()


def test_a_bare_name_goes_into_scenarios_if_there_is_such_a_folder() -> None:
    Path("scenarios").mkdir()
    assert write_new("kill") == Path("scenarios/kill.toml")


def test_what_is_there_is_never_overwritten() -> None:
    Path("kill.toml").write_text("mine")
    with pytest.raises(ScenarioError, match=r"kill\.toml: is there already; choose another name"):
        write_new("kill")
    assert Path("kill.toml").read_text() == "mine"


def test_a_folder_that_is_a_file_is_a_clear_error() -> None:
    Path("a").write_text("")
    with pytest.raises(ScenarioError, match=r"^a: is there already"):
        write_new("a/kill")


def test_a_name_that_no_file_can_have_is_a_clear_error() -> None:
    with pytest.raises(ScenarioError, match=r"\.toml: cannot be written: File name too long"):
        write_new("x" * 300)


def test_editors_find_the_schema_of_a_folder_above_or_one_beside_it() -> None:
    first = write_new("kill")
    assert first.read_text().startswith("#:schema scenario.schema.json\n")
    assert Path("scenario.schema.json").read_text() == schema_text()
    assert write_new("deep/down/kill").read_text().startswith("#:schema ../../scenario.schema.json\n")
    assert not Path("deep/down/scenario.schema.json").exists()
