"""The planted bugs are in order, without running them: ``python -m harness mutants`` does that."""

from __future__ import annotations

import runpy
from collections import Counter
from pathlib import Path

import pytest

from harness.mutants import NUM_BUGS_EACH, planted_files
from harness.scenario import load_scenario
from harness.wire import GUARANTEE_NAMES
from workloads import planted

SCRIPTS = sorted(path for path in Path(planted.__path__[0]).glob("*.py") if path.name != "__init__.py")


def source_of(workload: str) -> str:
    return (planted.WORKLOADS / f"{workload}.py").read_text()


def test_every_planted_script_has_a_scenario_and_every_scenario_its_script() -> None:
    assert [path.stem for path in planted_files()] == [path.stem for path in SCRIPTS]
    assert [load_scenario(path).script for path in planted_files()] == SCRIPTS


def test_at_least_two_bugs_are_planted_for_each_guarantee() -> None:
    count = Counter(broken.guarantee for path in planted_files() for broken in load_scenario(path).expect.broken)
    assert {name: count[name] for name in GUARANTEE_NAMES if count[name] < NUM_BUGS_EACH} == {}


@pytest.mark.parametrize("script", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_the_diff_of_a_planted_script_fits_its_workload(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[tuple[str, str]] = []
    monkeypatch.setattr(planted, "run", lambda diff="", *, workload="ddp_mlp", **_: runs.append((diff, workload)))
    for name in ("RANK", "TORCHELASTIC_RESTART_COUNT"):
        monkeypatch.setenv(name, "0")
    runpy.run_path(str(script))
    assert len(runs) == 1
    diff, workload = runs[0]
    source = planted.patched(diff, workload)
    assert (source != source_of(workload)) == bool(diff)
    compile(source, str(script), "exec")


@pytest.mark.parametrize(
    ("diff", "message"),
    [
        pytest.param("-    no_such_line()", "stand 0 times", id="lines that are not there"),
        pytest.param("-import", "stand 0 times", id="the beginning of a line is no line"),
        pytest.param("     if step == args.steps:\n+x", "stand 0 times", id="other indentation is another line"),
        pytest.param(" if rank == 0:\n*x", r"begins with '\*'", id="a sign that is none"),
    ],
)
def test_a_diff_that_does_not_fit_is_refused(diff: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        planted.patched(diff)


def test_a_diff_replaces_whole_lines_where_they_stand_and_nothing_else() -> None:
    source = source_of("ddp_mlp")
    patched = planted.patched("-import os\n+import posix\n\n         step += 1\n+        step += 0")
    assert patched == source.replace("\nimport os\n", "\nimport posix\n").replace(
        "        step += 1\n", "        step += 1\n        step += 0\n"
    )
