"""The command line: what it prints and what it exits with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import harness
from harness.__main__ import BROKEN, OK, UNKNOWN, main
from harness._tests.histories import Story, baseline, run
from harness._tests.stored_runs import killed_and_recovered, write_history, write_judged
from harness.baseline import write_baseline
from harness.faults import At
from harness.faults.kill import Kill
from harness.wire import Kind

KILL = Kill(kind="kill", rank=1, at=At(step=8, phase="backward"))


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
    return str(write_history(story.history(), run_dir))


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


def test_report_writes_the_page_and_the_trace_of_a_run_and_prints_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = write_judged(killed_and_recovered(run(faults=[KILL])).history(), tmp_path / "run")
    assert main(["report", str(run_dir)]) == OK
    assert capsys.readouterr().out == f"{run_dir / 'report.html'}\n"
    assert "Timeline" in (run_dir / "report.html").read_text()
    assert json.loads((run_dir / "trace.json").read_text())["traceEvents"]


def test_report_of_a_session_writes_its_page_and_that_of_each_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        write_judged(killed_and_recovered(run(faults=[KILL])).history(), tmp_path / name)
    (tmp_path / "broken-off").mkdir()
    (tmp_path / "broken-off" / "plan.json").write_text("{")
    assert main(["report", str(tmp_path)]) == OK
    assert capsys.readouterr().out == f"{tmp_path / 'report.html'}\n"
    page = (tmp_path / "report.html").read_text()
    assert 'href="one/report.html"' in page
    assert 'href="two/report.html"' in page
    assert (tmp_path / "two" / "report.html").is_file()
    assert "no readable plan" in page


def test_report_of_what_is_neither_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == UNKNOWN
    assert f"{tmp_path}: neither a run directory nor" in capsys.readouterr().err


def test_recheck_of_a_session_names_the_runs_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("four", "one", "three", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "plan.json").write_text("{}")
    assert main(["recheck", str(tmp_path)]) == UNKNOWN
    assert "; give one of the runs in it: four, one, three, ...\n" in capsys.readouterr().err


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
