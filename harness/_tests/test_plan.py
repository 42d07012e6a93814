"""Plans: every choice is made in them, and they come back from their file as they were."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from harness.errors import RecordError
from harness.plan import Plan, load_plan, made_with, make_plan, write_plan
from harness.scenario import Scenario, load_scenario

TEXT = """\
title = "all settings"
workload = "ddp_mlp"
args = ["--lr", "0.1", "--note", '{"steps": {steps}, "at": "{run_dir}/x", "else": {other}}']
ranks = 3
steps = 30
save_every = 10
seed = 7
max_restarts = 2
devices = ["cpu", "gpu"]
launcher = "torchrun"
collective_timeout_s = 3
deadline_s = 40.5
env = { A = "b" }
preload = ["json"]
tolerance = 1e-6
guarantees = ["RollbackExact"]

[[fault]]
kind = "kill"
rank = [2, 1]
at = { step = 12, phase = "backward" }

[[fault]]
kind = "torn"
rank = 0
at = { restart = 1, step = 20, failpoint = "ckpt.manifest.write" }
fraction = 0.25

[expect]
outcome = "detected"
restarts = 2
broken = [{ guarantee = "ReplicasAgree", rank = 1, step = 3 }, { guarantee = "SamplesOnce" }]
"""


def scenario_at(path: Path, text: str = TEXT) -> Scenario:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return load_scenario(path)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_plan_comes_back_from_its_file(here: Path) -> None:
    plan = make_plan(scenario_at(here / "s.toml"), device="gpu")
    write_plan(plan, here)
    assert load_plan(here) == plan


def test_a_plan_holds_what_the_scenario_says(here: Path) -> None:
    scenario = scenario_at(here / "s.toml")
    plan = make_plan(scenario, device="gpu")
    assert (plan.title, plan.device, plan.ranks, plan.seed, plan.launcher) == ("all settings", "gpu", 3, 7, "torchrun")
    assert (plan.steps, plan.save_every, plan.max_restarts) == (30, 10, 2)
    assert (plan.collective_timeout_s, plan.deadline_s, plan.tolerance) == (3.0, 40.5, 1e-6)
    assert (plan.env, plan.preload, plan.guarantees) == ({"A": "b"}, ("json",), ("RollbackExact",))
    assert (plan.faults, plan.expect, plan.scenario_file) == (scenario.faults, scenario.expect, str(here / "s.toml"))
    assert (plan.disarmed, plan.num_planned_faults) == (False, 2)
    assert Path(plan.script).is_absolute()


def test_our_workloads_are_told_steps_interval_seed_and_folder(here: Path) -> None:
    plan = make_plan(scenario_at(here / "s.toml"), device="cpu", seed=8)
    ours = ("--steps", "30", "--save-every", "10", "--seed", "8", "--checkpoint-dir", "{checkpoints}")
    assert plan.args[:8] == ours
    # What the launcher knows is left to it, and braces of the user's own are left alone.
    assert plan.args[8:] == ("--lr", "0.1", "--note", '{"steps": 30, "at": "{run_dir}/x", "else": {other}}')


def test_a_script_of_the_users_gets_its_own_arguments_only(here: Path) -> None:
    (here / "train.py").write_text("")
    text = 'workload = "train.py"\nargs = ["--seed={seed}", "{checkpoints}"]\n[expect]\noutcome = "clean"\n'
    plan = make_plan(scenario_at(here / "s.toml", text), device="cpu", seed=5)
    assert plan.args == ("--seed=5", "{checkpoints}")
    assert (plan.steps, plan.save_every) == (None, None)
    assert plan.script == str(here / "train.py")
    assert plan.title == plan.name == "s-cpu"


def test_the_command_line_beats_the_scenario_but_zero_is_a_seed(here: Path) -> None:
    plan = make_plan(scenario_at(here / "s.toml"), device="cpu", launcher="warm", seed=0)
    assert (plan.launcher, plan.seed) == ("warm", 0)


def test_a_disarmed_plan_has_no_faults_and_says_how_many_there_were(here: Path) -> None:
    plan = make_plan(scenario_at(here / "s.toml"), device="cpu", disarm=True)
    assert (plan.faults, plan.disarmed, plan.num_planned_faults) == ((), True, 2)


def test_names_say_the_file_and_the_device(here: Path) -> None:
    scenario = scenario_at(here / "smoke" / "kill-in-backward.toml")
    assert make_plan(scenario, device="cpu").name == "smoke.kill-in-backward-cpu"
    assert make_plan(scenario, device="gpu").name == "smoke.kill-in-backward-gpu"


def test_no_two_files_share_a_name(here: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    files = [here / "a" / "b.toml", here / "a.b.toml", here / "a b.toml", here / "b.toml", here / ".b.toml"]
    files += [elsewhere / "a" / "b.toml", elsewhere / "c" / "a" / "b.toml", here / ("x" * 200 + ".toml")]
    names = {make_plan(scenario_at(file), device="cpu").name for file in files}
    assert len(names) == len(files)
    assert all(len(name) < 200 and "/" not in name and not name.startswith(".") for name in names)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_plan_names_the_commit_and_says_whether_the_script_was_changed(tmp_path: Path) -> None:
    def git(*args: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
        done = subprocess.run(["git", *identity, *args], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    (tmp_path / "train.py").write_text("a = 1\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "x")
    clean = made_with(tmp_path)
    assert (clean["commit"], clean["dirty"]) == (git("rev-parse", "HEAD"), "false")
    (tmp_path / "train.py").write_text("a = 2\n")
    made_with.cache_clear()
    assert made_with(tmp_path) == clean | {"dirty": "true"}
    assert all(clean.values())
    assert clean["torch"] != "unknown"
    assert set(clean) == {"commit", "dirty", "python", "torch", "harness"}


def test_without_a_repository_the_commit_is_unknown(tmp_path: Path) -> None:
    assert (made_with(tmp_path)["commit"], made_with(tmp_path)["dirty"]) == ("unknown", "unknown")


DAMAGED = {
    "no file": None,
    "half a file": lambda text: text[: len(text) // 2],
    "a fault of an unknown kind": lambda text: text.replace('"kill"', '"kil"'),
    "null": lambda _: "null",
    "a list": lambda _: "[]",
    "too deep": lambda _: "[" * 200_000,
    "ranks in words": lambda text: text.replace('"ranks": 3', '"ranks": "3"'),
    "no ranks": lambda text: text.replace('"ranks": 3', '"ranks": 0'),
    "an unknown field": lambda text: text.replace('"title"', '"titel"'),
}


@pytest.mark.parametrize(
    ("old", "new"), [('"detected"', '"nope"'), ('"RollbackExact"', '"Nope"'), ('"SamplesOnce"', '"Nope"')]
)
def test_a_plan_with_an_unknown_name_is_refused_by_that_name(here: Path, old: str, new: str) -> None:
    write_plan(make_plan(scenario_at(here / "s.toml"), device="cpu"), here)
    text = (here / "plan.json").read_text()
    assert old in text
    (here / "plan.json").write_text(text.replace(old, new))
    with pytest.raises(RecordError, match=r"unknown .*'[Nn]ope'"):
        load_plan(here)


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_plan_is_refused(here: Path, damage: object) -> None:
    plan: Plan = make_plan(scenario_at(here / "s.toml"), device="cpu")
    if callable(damage):
        write_plan(plan, here)
        (here / "plan.json").write_text(damage((here / "plan.json").read_text()))
    with pytest.raises(RecordError, match=r"plan\.json: no readable plan"):
        load_plan(here)
