"""A script compiled ahead is run exactly as one that is not."""

from __future__ import annotations

import json
import runpy
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.rank import scripts
from harness.wire import PLAN_JSON


@pytest.fixture(autouse=True)
def _as_in_a_warm_parent() -> Iterator[None]:
    scripts.install()
    yield
    scripts._codes.clear()
    del vars(runpy)["compile"]


def _planned(tmp_path: Path, text: str) -> Path:
    script = tmp_path / "script.py"
    script.write_text(text)
    (tmp_path / PLAN_JSON).write_text(json.dumps({"script": str(script)}))
    return script


def test_the_code_is_the_one_that_was_compiled(tmp_path: Path) -> None:
    script = _planned(tmp_path, "import sys\ncode = sys._getframe().f_code\n")
    scripts.compile_ahead(tmp_path)
    (compiled,) = scripts._codes.values()
    first, second = (runpy.run_path(str(script), run_name="__main__") for _ in range(2))
    assert first["code"] is compiled is second["code"]
    assert compiled.co_filename == first["__file__"] == str(script)
    assert first is not second


def test_what_has_been_written_since_is_what_runs(tmp_path: Path) -> None:
    script = _planned(tmp_path, "x = 1\n")
    scripts.compile_ahead(tmp_path)
    script.write_text("x = 2\n")
    assert runpy.run_path(str(script))["x"] == 2
    scripts.compile_ahead(tmp_path)
    assert runpy.run_path(str(script))["x"] == 2
    assert len(scripts._codes) == 2


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("x = (\n", id="that is no Python"),
        pytest.param("x = '\\d'\n", id="that a compiler warns of"),
        pytest.param("x = '\0'\n", id="with a byte of zero"),
    ],
)
def test_left_to_the_ranks_is_a_script(text: str, tmp_path: Path) -> None:
    _planned(tmp_path, text)
    with warnings.catch_warnings(record=True) as caught:
        scripts.compile_ahead(tmp_path)
    assert scripts._codes == {}
    assert caught == []


@pytest.mark.parametrize("plan", ["", "[]", "{}", '{"script": "/none.py"}', '{"script": 3}'])
def test_a_plan_that_names_no_script_is_for_the_supervisor_to_refuse(plan: str, tmp_path: Path) -> None:
    (tmp_path / PLAN_JSON).write_text(plan)
    scripts.compile_ahead(tmp_path)
    assert scripts._codes == {}


def test_it_takes_no_future_from_the_module_that_compiles(tmp_path: Path) -> None:
    script = _planned(tmp_path, "def f(x: 1 + 1): pass\n")
    assert runpy.run_path(str(script))["f"].__annotations__ == {"x": 2}
    scripts.compile_ahead(tmp_path)
    assert runpy.run_path(str(script))["f"].__annotations__ == {"x": 2}


def test_no_more_are_kept_than_fit(tmp_path: Path) -> None:
    for number in range(scripts.MAX_KEPT + 3):
        _planned(tmp_path, f"x = {number}\n")
        scripts.compile_ahead(tmp_path)
    assert len(scripts._codes) == scripts.MAX_KEPT
    assert next(source for source, _ in scripts._codes) == b"x = 3\n"
