"""A scenario file to a Scenario or a SaverScenario, or all of its problems at once."""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from harness.errors import ScenarioError
from harness.scenario import rules
from harness.scenario.model import Scenario
from harness.scenario.saver import SaverScenario
from harness.scenario.toml_lines import Path, line_of, locate
from harness.scenario.wording import MISSING, Problem, problems_of, shown, value_at

_AN_EFFECT = {"lines": "{run_dir}/lines", "key": ["step"]}
_A_FAULT = {"kind": "kill", "rank": 0, "at": {"step": 1}}  # right in every scenario that is right by itself


def load_scenario(path: FilePath) -> Scenario:
    """The scenario that the TOML file ``path`` describes.

    Raises:
        ScenarioError: with every problem of the file, each as ``file:line: field: value: what is wrong``, what is
            allowed and the nearest known name.
    """
    text, raw = _read(path)
    scenario, problems = _check(raw, path)
    if scenario is None or problems:
        raise _error(path, text, raw, problems)
    return scenario


def load_saver_scenario(path: FilePath) -> SaverScenario:
    """The scenario of a save function that the TOML file ``path`` describes.

    Raises:
        ScenarioError: as ``load_scenario``.
    """
    text, raw = _read(path)
    try:
        scenario = SaverScenario.model_validate_json(json.dumps(raw, default=_not_json), strict=True)
    except ValidationError as error:
        found = problems_of(error, raw, SaverScenario)
        inner = [p for p in found if not any(q.path[: len(p.path)] == p.path for q in found if q is not p)]
        raise _error(path, text, raw, inner) from error  # a wrong item also makes its list too short
    scenario._file = path.resolve()
    if problems := rules.saver_problems(scenario):
        raise _error(path, text, raw, problems)
    return scenario


def is_saver_scenario(path: FilePath) -> bool:
    """Whether the file names a save function in place of a workload; False also if it cannot be read."""
    try:
        raw = tomllib.loads(path.read_bytes().decode())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return False
    return "saver" in raw and "workload" not in raw


def _read(path: FilePath) -> tuple[str, dict[str, Any]]:
    try:
        text = path.read_bytes().decode()
        return text, tomllib.loads(text)
    except OSError as error:
        raise ScenarioError([f"{path}: cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ScenarioError([f"{path}:{line}: is not UTF-8 text; save it as UTF-8"]) from error
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError([_syntax_problem(path, text, error)]) from error


def _error(path: FilePath, text: str, raw: dict[str, Any], problems: list[Problem]) -> ScenarioError:
    lines = locate(text)
    problems = sorted(problems, key=lambda problem: line_of(lines, problem.path))
    return ScenarioError([_line(path, line_of(lines, p.path), p, raw) for p in problems])


def _check(raw: dict[str, Any], file: FilePath) -> tuple[Scenario | None, list[Problem]]:
    """The scenario if it could be made at all, and what is wrong with the file.

    One wrong field must not hide the others: each is replaced by something right, so that the rest can be checked.
    """
    found: list[Problem] = []
    mended = copy.deepcopy(raw)
    while True:
        try:
            scenario = Scenario.model_validate_json(json.dumps(mended, default=_not_json), strict=True)
        except ValidationError as error:
            problems = problems_of(error, mended)
            new = _not_implied(problems, found)
            found += new
            mend = _mend if new else _clear
            if not all(mend(mended, problem) for problem in new or problems):
                return None, found
        else:
            scenario._file = file.resolve()
            return scenario, found + _not_implied(rules.problems(scenario), found)


def _not_json(value: Any) -> Any:
    return {str(value): None}  # a date: no field takes one, nor this


def _not_implied(problems: Iterable[Problem], known: list[Problem]) -> list[Problem]:
    """``problems`` without those that are about, or need, a field with a known one."""
    bad = [problem.path for problem in known]
    return [p for p in problems if not any(_overlap(place, b) for place in (p.path, *p.needs) for b in bad)]


def _overlap(one: Path, other: Path) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def _mend(raw: dict[str, Any], problem: Problem) -> bool:
    """Put something right in the place of what is wrong: the nearest known value, a stand-in, or the default."""
    match problem.path:
        case ("workload",):
            raw["workload"] = "stand-in"
        case ("effect", int(n), "key"):
            raw["effect"][n]["key"] = ["step"]
        case ("expect",) | ("expect", "outcome"):
            raw["expect"] = {**_table(raw.get("expect")), "outcome": problem.nearest or "stops"}
        case ("fault", int(n)):
            raw["fault"][n] = dict(_A_FAULT)
        case ("fault", int(n), "kind"):
            raw["fault"][n] = {**raw["fault"][n], "kind": problem.nearest} if problem.nearest else dict(_A_FAULT)
        case ("fault", int(n), "rank"):
            raw["fault"][n]["rank"] = 0
        case (*around, last):
            container = value_at(raw, tuple(around))
            if problem.nearest is not None:
                container[last] = problem.nearest
            elif isinstance(container, list):  # the list goes: without an item the others would get other numbers
                value_at(raw, tuple(around[:-1])).pop(around[-1])
            elif isinstance(container, dict):
                container.pop(last, None)
    return True


def _clear(raw: dict[str, Any], problem: Problem) -> bool:
    """Take out all of what could not be mended bit by bit; False if it is not known how."""
    match problem.path:
        case ("fault", int(n), *_):
            raw["fault"][n] = dict(_A_FAULT)
        case ("effect", int(n), *_):
            raw["effect"][n] = dict(_AN_EFFECT)
        case ("metric", *_):
            raw.pop("metric")
        case ("expect", "broken", *_):
            raw["expect"]["broken"] = []
        case _:
            return False
    return True


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _syntax_problem(path: FilePath, text: str, error: tomllib.TOMLDecodeError) -> str:
    message, _, place = str(error).rpartition(" (at ")
    at_line = re.match(r"line (\d+), column (\d+)", place)
    line = int(at_line[1]) if at_line else text.count("\n") + 1
    column = f", column {at_line[2]}" if at_line else ""
    return f"{path}:{line}: is not TOML: {message or place}{column}; see https://toml.io"


def _line(path: FilePath, line: int, problem: Problem, raw: dict[str, Any]) -> str:
    value = value_at(raw, problem.path)
    return f"{path}:{line}: {problem.field}: {'' if value is MISSING else shown(value) + ': '}{problem.text}"
