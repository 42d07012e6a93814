"""Scenarios of a save function: what may stand in one, and what pytest makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.crashstates.record.tracing import why_unavailable
from harness.errors import ScenarioError
from harness.scenario import is_saver_scenario, load_saver_scenario

SAFE = """
import os

def save(directory, step):
    path = f"{directory}/step-{step}"
    os.mkdir(f"{directory}/tmp")
    with open(f"{directory}/tmp/data", "w") as file:
        file.write(str(step) * 100)
        file.flush()
        os.fsync(file.fileno())
    for synced in (f"{directory}/tmp", directory):
        if synced == directory:
            os.rename(f"{directory}/tmp", path)
        fd = os.open(synced, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)

def load(directory):
    steps = sorted(name for name in os.listdir(directory) if name.startswith("step-"))
    return open(f"{directory}/{steps[-1]}/data").read() if steps else None
"""
UNSAFE = SAFE.replace("os.fsync(fd)", "synced == directory or os.fsync(fd)")
VALID = 'saver = "saver.py"\n[expect]\noutcome = "valid"\n'
BROKEN = VALID.replace('"valid"', '"broken"') + 'verdicts = ["lost-ack", "lost-work"]\nmodel = "ext4-ordered"\n'


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    (tmp_path / "saver.py").write_text(SAFE)
    path = tmp_path / "scenario.toml"
    path.write_text(VALID)
    return path


def test_what_is_left_out_has_a_default(scenario: Path) -> None:
    loaded = load_saver_scenario(scenario)
    assert loaded.saver_file == scenario.with_name("saver.py")
    assert loaded.models == ("kill", "ext4-ordered", "posix-min", "alice")
    assert is_saver_scenario(scenario)


def test_all_problems_are_reported_at_once_each_with_its_line(scenario: Path) -> None:
    scenario.write_text('saver = 3\nmodle = ["kill"]\nmodels = ["kil"]\nseed = -1\n[expect]\noutcome = "vaild"\n')
    with pytest.raises(ScenarioError) as caught:
        load_saver_scenario(scenario)
    problems = [problem.removeprefix(f"{scenario}:") for problem in caught.value.problems]
    assert [problem.split(":")[0] for problem in problems] == ["1", "2", "3", "4", "6"]
    assert "must be a string" in problems[0]
    assert "did you mean 'models'?" in problems[1]
    assert "did you mean 'kill'?" in problems[2]
    assert "did you mean 'valid'?" in problems[4]


def test_a_wrong_field_does_not_hide_what_does_not_go_together(scenario: Path) -> None:
    scenario.write_text(
        'saver = "other.py"\nseed = -1\nmodels = ["kill"]\n[expect]\noutcome = "broken"\nmodel = "alice"\n'
    )
    with pytest.raises(ScenarioError) as caught:
        load_saver_scenario(scenario)
    fields = [problem.removeprefix(f"{scenario}:").split(": ")[1] for problem in caught.value.problems]
    assert fields == ["saver", "seed", "expect.verdicts", "expect.model"]


@pytest.mark.parametrize("outcome", ["vaild", "brken"])
def test_an_unknown_outcome_has_no_follow_ons(scenario: Path, outcome: str) -> None:
    scenario.write_text(f'saver = "saver.py"\n[expect]\noutcome = "{outcome}"\nmodel = "kill"\n')
    with pytest.raises(ScenarioError) as caught:
        load_saver_scenario(scenario)
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('saver = "other.py"\n[expect]\noutcome = "valid"\n', "there is no file"),
        ('saver = "saver.py"\n[expect]\noutcome = "broken"\n', "name the ways to fail"),
        (VALID + 'verdicts = ["lost-ack"]\n', "only for outcome = 'broken'"),
        (BROKEN.replace("[expect]", 'models = ["kill"]\n[expect]'), "is not among models"),
        ('saver = "saver.py"\n', "expect: missing"),
    ],
)
def test_what_does_not_go_together_is_refused(scenario: Path, text: str, words: str) -> None:
    scenario.write_text(text)
    with pytest.raises(ScenarioError, match=words):
        load_saver_scenario(scenario)


needs_strace = pytest.mark.skipif(why_unavailable() is not None, reason=f"strace: {why_unavailable()}")


@needs_strace
@pytest.mark.parametrize(
    ("script", "text", "options", "words"),
    [
        pytest.param(SAFE, VALID, [], ["cpu passed"], id="a safe one that is to be valid"),
        pytest.param(UNSAFE, BROKEN, [], ["cpu passed"], id="an unsafe one that is to be found so"),
        pytest.param(
            UNSAFE,
            VALID,
            [],
            ["the save is broken, and valid was expected", "missing: fsync of the directory", "kept *.tar"],
            id="an unsafe one that is to be valid",
        ),
        pytest.param(
            UNSAFE,
            BROKEN.replace("ext4-ordered", "posix-min"),
            [],
            ["it fails under ext4-ordered at the weakest, not posix-min"],
            id="one that fails under another kind of crash",
        ),
        pytest.param(
            UNSAFE,
            BROKEN.replace('"lost-ack", ', '"hang", '),
            [],
            ["no state is hang, which was expected", "some states are lost-ack, which was not expected"],
            id="one that fails in another way",
        ),
        pytest.param(SAFE, VALID, ["--disarm"], ["UNKNOWN: no crash was tried"], id="without crashes nothing is known"),
    ],
)
def test_pytest_runs_it(
    pytester: pytest.Pytester, script: str, text: str, options: list[str], words: list[str]
) -> None:
    pytester.path.joinpath("saver.py").write_text(script)
    path = pytester.path / "scenario.toml"
    path.write_text(text)
    result = pytester.runpytest_subprocess(str(path), *options)
    result.stdout.fnmatch_lines([f"*{word}*" for word in words])
    assert result.ret == (0 if words == ["cpu passed"] else 1)
