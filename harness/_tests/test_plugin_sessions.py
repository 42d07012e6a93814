"""The plugin from outside: what a session keeps and writes, how it is judged again, and what it costs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from xml.etree import ElementTree

import psutil
import pytest

from harness._tests.repository import CONFTEST, Repository
from harness.rank.descendants import settle

MY_SCRIPT = """
import random

import torch
import torch.distributed as dist
import torch.distributed.nn  # before the group is made, so that it can be taken down

dist.init_process_group("gloo")
random.seed(0)
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(8, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
del model
dist.destroy_process_group()
"""


@pytest.fixture
def repository(pytester: pytest.Pytester) -> Repository:
    pytester.makeconftest(textwrap.dedent(CONFTEST))
    return Repository(pytester)


# ------------------------------------------------------------------------------------------------- records, sessions


def test_junit_has_a_test_case_for_each_scenario_and_device(repository: Repository) -> None:
    repository.scenario("kill", "is broken", devices='"cpu", "gpu"')
    repository.run("--junit-xml=junit.xml")
    cpu, gpu = ElementTree.parse(repository.path / "junit.xml").iter("testcase")
    properties = {element.get("name"): element.get("value") for element in cpu.iter("property")}
    assert (cpu.get("classname"), cpu.get("name"), gpu.get("name")) == ("scenarios.kill.toml", "cpu", "gpu")
    assert properties["verdicts"] == "ReplicasAgree=invalid"
    assert properties["run_dir"] == str(repository.runs[0])
    assert "ReplicasAgree is invalid" in str(next(cpu.iter("failure")).get("message"))
    assert "2 missing" in str(next(gpu.iter("skipped")).get("message"))


def test_every_result_of_a_session_stands_in_its_report(repository: Repository) -> None:
    for name, title in (("a", "holds"), ("b", "is broken"), ("c", "makes trouble")):
        repository.scenario(name, title)
    repository.run("--chaos-seed=7")
    (path,) = repository.path.glob(".chaos/runs/*/report.json")
    report = json.loads(path.read_text())
    assert report["seed"] == 7
    assert {entry["test"]: entry["result"] for entry in report["results"]} == {
        "scenarios/a.toml::cpu": "passed",
        "scenarios/b.toml::cpu": "failed",
        "scenarios/c.toml::cpu": "error",
    }


def test_a_session_has_a_page_and_the_last_lines_name_it(repository: Repository) -> None:
    repository.scenario("a", "holds")
    repository.scenario("b", "is broken")
    result = repository.run()
    (page,) = repository.path.glob(".chaos/runs/*/report.html")
    result.stdout.fnmatch_lines([f"chaos: open {page.relative_to(repository.path)}"])
    assert "1 failed of 2" in re.sub(r"\s+", " ", page.read_text())


def test_a_run_whose_page_cannot_be_written_fails_as_it_would_with_one(repository: Repository) -> None:
    repository.scenario("b", "is broken")  # it leaves no records, of which a page could be made
    result = repository.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*ReplicasAgree is invalid*", "*no page of this run: *outcome.json*"])


def test_runs_are_kept_and_the_oldest_that_passed_are_pruned(repository: Repository) -> None:
    repository.scenario("a", "holds")
    repository.scenario("b", "is broken")
    for number in range(5):
        old = repository.write(f".chaos/runs/2020010{number}-000000-1/session.json", "{}").parent / "a-cpu"
        old.mkdir()
        (old / "plan.json").write_text("{}")
        (old / "verdicts.json").write_text('{"outcome": "passed"}')
    repository.run()
    sessions = sorted(path.name for path in (repository.path / ".chaos" / "runs").glob("2*"))
    assert sessions[0] == "20200101-000000-1"
    assert len(sessions) == 5
    assert len(list((repository.path / ".chaos" / "runs" / sessions[-1]).glob("*/plan.json"))) == 2


def test_one_session_serves_all_scenarios_and_is_closed(repository: Repository) -> None:
    for name in "abc":
        repository.scenario(name)
    repository.run().assert_outcomes(passed=3)
    assert len(list(repository.path.glob(".chaos/runs/*/opened-*"))) == 1
    assert len(list(repository.path.glob(".chaos/runs/*/closed-*"))) == 1


def test_the_harness_s_own_session_is_told_where_to_keep_what(repository: Repository) -> None:
    repository.scenario("kill")
    own = """
        import harness.run
        class Told(ByTitle):
            def __init__(self, store_dir, runs_dir, *, fresh_baselines):
                super().__init__(runs_dir)
                print("store", store_dir.name, "runs", runs_dir.relative_to(store_dir), "fresh", fresh_baselines)
            __enter__ = lambda self: self
            __exit__ = lambda self, *_: None
        harness.run.Session = Told
        del pytest_chaos_make_session
    """
    repository.write("conftest.py", textwrap.dedent(CONFTEST) + textwrap.dedent(own))
    result = repository.run_alone("-s", "--fresh-baselines", "--chaos-store=kept")
    result.stdout.fnmatch_lines(["*store kept runs runs/2* fresh True"])


def test_pytest_xdist_workers_share_a_session_directory(repository: Repository) -> None:
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    for name, title in (("a", "holds"), ("b", "is broken"), ("c", "is unknown"), ("d", "holds")):
        repository.scenario(name, title)
    result = repository.run_alone("-n", "2")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["ReplicasAgree is invalid: *", "*replay *scenarios/b.toml::cpu*"])
    (path,) = repository.path.glob(".chaos/runs/*/report.json")
    assert len(json.loads(path.read_text())["results"]) == 4
    assert {run.parent for run in repository.runs} == {path.parent}
    assert len(list(path.parent.glob("opened-*"))) == len(list(path.parent.glob("closed-*"))) == 2


@pytest.mark.timeout(200)  # seconds: three interpreters start, on a busy machine
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_pytest_xdist_workers_end_with_their_controller(repository: Repository, number: signal.Signals) -> None:
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    for name in ("a", "b"):
        repository.scenario(name, "is deaf")
    command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider"]
    controller = psutil.Popen(command, cwd=repository.path, stdout=subprocess.DEVNULL)
    try:
        assert settle(lambda: len(list(repository.path.glob(".chaos/runs/*/opened-*"))) == 2, 120)
        workers = controller.children(recursive=True)
        controller.send_signal(number)
        assert len(workers) == 2
        assert psutil.wait_procs(workers, timeout=10)[1] == []  # execnet alone takes 15 s
    finally:
        controller.kill()
        controller.wait()


def test_stored_runs_are_judged_again_instead_of_running(repository: Repository) -> None:
    repository.scenario("a", "holds")
    repository.run().assert_outcomes(passed=1)
    (run,) = repository.runs
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "plan.json").write_text("not a run")
    (run / "outcome.json").write_text("{ damaged")
    result = repository.run("--recheck", str(run.parent), "-v")
    result.assert_outcomes(errors=1)  # the records of this run say nothing: its session was made up
    result.stdout.fnmatch_lines(["*a-cpu/plan.json::recheck ERROR*", "RecordError: *outcome.json*"])
    assert repository.runs == [run]
    (run / "outcome.json").unlink()  # it was broken off
    result = repository.run("--recheck", str(run.parent), "-v")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*a-cpu/plan.json::recheck ERROR*", "RecordError: *outcome.json*"])


# ------------------------------------------------------------------------------------------------------------- costs


def test_a_session_without_scenarios_notices_nothing(repository: Repository) -> None:
    repository.write("test_other.py", "def test_other():\n    pass\n")
    repository.write(
        "conftest.py",
        "import sys\n"
        "def pytest_sessionfinish(session):\n"
        "    heavy = {'torch', 'pydantic', 'psutil', 'filelock', 'harness.scenario', 'harness.run', 'harness.plan'}\n"
        "    print('loaded:', sorted(heavy & set(sys.modules)))\n",
    )
    result = repository.run_alone("-s")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*loaded: []"])
    result.stdout.no_fnmatch_line("*chaos:*")
    assert not (repository.path / ".chaos").exists()


def test_running_scenarios_never_imports_torch(repository: Repository) -> None:
    repository.scenario("a", "holds")
    repository.scenario("b", "is broken")
    with (repository.path / "conftest.py").open("a") as file:
        file.write(
            "\nimport sys\n"
            "def pytest_unconfigure(config):\n"
            "    print('imported:', *({'torch', 'harness.run'} & set(sys.modules)))\n"
        )
    result = repository.run_alone("-s")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["imported: harness.run"])


def test_real_ranks_in_a_repository_of_a_user(pytester: pytest.Pytester) -> None:
    """The whole chain once, with a script that knows nothing of the harness: ``scenarios/`` has the rest."""
    repository = Repository(pytester)
    repository.write("train/mine.py", MY_SCRIPT)
    audit = 'title = "an audit"\nworkload = "mine.py"\n[expect]\noutcome = "clean"\n'
    repository.write("train/audit.toml", audit)
    repository.write(
        "conftest.py", "import sys\ndef pytest_unconfigure():\n    print('torch', 'torch' in sys.modules)\n"
    )
    result = repository.run_alone("-s", "train")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["train/audit.toml cpu passed *", "torch False"])
    (run,) = repository.runs
    assert json.loads((run / "verdicts.json").read_text())["outcome"] == "passed"
    repository.run_alone("--recheck", ".chaos/runs").assert_outcomes(passed=1)


def test_loading_the_plugin_takes_milliseconds() -> None:
    code = "import time, pytest; t = time.process_time(); import harness.plugin; print(time.process_time() - t)"
    took_s = min(
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    )
    assert took_s < 0.1, f"{took_s:.3f} s of processor time"


def test_the_installed_entry_point_is_this_plugin() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--trace-config", "--collect-only", os.devnull],
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.search(r"chaos +: .*harness/plugin/__init__.py", done.stdout), done.stdout[:2000]
