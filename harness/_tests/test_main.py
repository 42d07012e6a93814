"""The command line: what it prints and what it exits with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

import harness
from harness.__main__ import BROKEN, OK, UNKNOWN, main
from harness._tests.histories import Story, baseline, run
from harness.baseline import write_baseline
from harness.plan import write_plan
from harness.wire import Kind, events_path


def test_doctor_exits_with_0_exactly_if_it_says_that_the_main_job_can_run(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor"])
    out = capsys.readouterr().out
    assert ("The main job can run" in out) is (code == OK)
    assert " torch " in out


def test_doctor_exits_with_1_where_torch_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libgone.so: cannot open')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{Path(harness.__file__).parents[1]}")
    assert main(["doctor"]) == BROKEN
    out = capsys.readouterr().out
    assert "libgone.so" in out
    assert "The main job cannot run: torch, gloo missing" in out


def test_new_writes_a_scenario_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "mine.toml"]) == OK
    assert "pytest mine.toml" in capsys.readouterr().out
    written = (tmp_path / "mine.toml").read_text()
    assert main(["new", "mine.toml"]) == UNKNOWN
    assert "mine.toml: is there already" in capsys.readouterr().err
    assert (tmp_path / "mine.toml").read_text() == written


def test_schema_prints_what_editors_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == OK
    assert "workload" in json.loads(capsys.readouterr().out)["properties"]


def stored(story: Story, run_dir: Path) -> str:
    """Write a told run as the launcher and the ranks would have written it."""
    history = story.history()
    run_dir.mkdir()
    write_plan(history.plan, run_dir)
    (run_dir / "outcome.json").write_text(json.dumps(asdict(history.outcome)))
    for event in history.events:
        path = events_path(run_dir, event.rank, event.restart)
        path.parent.mkdir(exist_ok=True)
        line = {"t": event.t_ns, "kind": event.kind, "step": event.step, "phase": event.phase, **event.data}
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
    return str(run_dir)


def test_recheck_of_a_run_that_kept_every_promise_exits_with_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = stored(run().start().updates(1, 12).leave(), tmp_path / "run")
    write_baseline(baseline(), tmp_path / "run")
    assert main(["recheck", run_dir]) == OK
    out = capsys.readouterr().out
    assert "ReplicasAgree" in out
    assert "before   never judged" in out


def test_recheck_of_a_run_with_a_broken_guarantee_exits_with_1_and_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story = run().start().updates(1, 12).leave().edit(Kind.UPDATE, rank=1, step=7, data={"params": "others"})
    run_dir = stored(story, tmp_path / "run")
    (tmp_path / "run" / "verdicts.json").write_text(
        '{"outcome": "passed", "headline": "", "verdicts": [], "blamed": [], "problems": []}'
    )
    assert main(["recheck", run_dir]) == BROKEN
    out = capsys.readouterr().out
    assert "ReplicasAgree is broken" in out
    assert "step 7" in out
    assert "before   passed (verdicts.json, left as it is)" in out
    assert '"passed"' in (tmp_path / "run" / "verdicts.json").read_text()


def test_recheck_of_a_run_that_proves_nothing_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = stored(run(disarmed=True, num_planned_faults=1).start().updates(1, 12).leave(), tmp_path / "run")
    assert main(["recheck", run_dir]) == UNKNOWN
    assert "FaultFired is unknown" in capsys.readouterr().out


def test_a_run_directory_that_is_none_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recheck", str(tmp_path)]) == UNKNOWN
    assert f"python -m harness recheck: {tmp_path}/plan.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param([], "COMMAND", id="no command"),
        pytest.param(["destroy"], "invalid choice: 'destroy'", id="an unknown command"),
        pytest.param(["recheck"], "RUN_DIR", id="a missing argument"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_what_is_allowed(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(arguments)
    assert exit_info.value.code == UNKNOWN
    assert words in capsys.readouterr().err


def test_the_module_runs_and_no_command_imports_torch() -> None:
    code = (
        "import runpy, sys; sys.argv = ['harness', 'schema']\n"
        "try: runpy.run_module('harness', run_name='__main__')\n"
        "except SystemExit as e: print('exit', e.code, 'torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.strip() == "exit 0 False"
