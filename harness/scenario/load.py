"""A scenario file to a Scenario or a SaverScenario, or all of its problems at once."""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path as FilePath
from typing import Any, TypeVar

from pydantic import ValidationError

from harness.errors import ScenarioError
from harness.scenario import rules
from harness.scenario.mend import clear, mend
from harness.scenario.model import Scenario
from harness.scenario.saver import SaverScenario
from harness.scenario.toml_lines import Path, line_of, locate
from harness.scenario.wording import ARRAYS, MISSING, Problem, problems_of, shown, single_bracket, value_at

AScenario = TypeVar("AScenario", Scenario, SaverScenario)


def load_scenario(path: FilePath) -> Scenario:
    """The scenario that the TOML file ``path`` describes.

    Raises:
        ScenarioError: with every problem of the file, each as ``file:line: field: value: what is wrong``, what is
            allowed and the nearest known name.
    """
    return _load(path, Scenario, rules.problems)


def load_saver_scenario(path: FilePath) -> SaverScenario:
    """The scenario of a save function that the TOML file ``path`` describes.

    Raises:
        ScenarioError: as ``load_scenario``.
    """
    return _load(path, SaverScenario, rules.saver_problems)


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


def _load(file: FilePath, model: type[AScenario], problems_between: Callable[[AScenario], list[Problem]]) -> AScenario:
    text, raw = _read(file)
    single = [name for name in ARRAYS if isinstance(raw.get(name), dict)]
    raw |= {name: [raw[name]] for name in single}
    scenario, problems = _check(raw, file, model, problems_between)
    problems += [single_bracket(name) for name in single]
    if scenario is not None and not problems:
        return scenario
    lines = _lines(text, single, problems)
    problems.sort(key=lambda problem: line_of(lines, problem.path))
    raise ScenarioError([_line(file, line_of(lines, p.path), p, raw) for p in problems])


def _lines(text: str, single: list[str], problems: list[Problem]) -> dict[Path, int]:
    """Where things stand, also those of a ``single`` table as of the first of an array, and under another name."""
    lines = dict(locate(text))
    lines |= {(path[0], 0, *path[1:]): line for path, line in lines.items() if path[0] in single}
    for problem in problems:
        if problem.meant is not None:
            size = len(problem.path)
            lines |= {(*problem.meant, *p[size:]): line for p, line in lines.items() if p[:size] == problem.path}
    return lines


def _check(
    raw: dict[str, Any],
    file: FilePath,
    model: type[AScenario],
    problems_between: Callable[[AScenario], list[Problem]],
) -> tuple[AScenario | None, list[Problem]]:
    """The scenario if it could be made at all, and what is wrong with the file.

    One wrong field must not hide the others: each is replaced by something right, so that the rest can be checked.
    """
    found: list[Problem] = []
    mended = copy.deepcopy(raw)
    while True:
        try:
            scenario = model.model_validate_json(json.dumps(mended, default=_not_json), strict=True)
        except ValidationError as error:
            problems = _innermost(problems_of(error, mended, model))
            new = _not_implied(problems, found)
            found += new
            put_right = mend if new else clear
            if not all(put_right(mended, problem, model) for problem in new or problems):
                return None, found
        else:
            scenario._file = file.resolve()
            return scenario, found + _not_implied(problems_between(scenario), found)


def _innermost(problems: list[Problem]) -> list[Problem]:
    """Without those around others: a wrong item also makes its list too short."""
    meant = [problem.meant for problem in problems if problem.meant is not None]
    return [
        p
        for p in problems
        if p.path not in meant  # what is missing stands there, under a name that is not known
        and not any(p is not q and q.path[: len(p.path)] == p.path for q in problems)
    ]


def _not_json(value: Any) -> Any:
    return {str(value): None}  # a date: no field takes one, nor this


def _not_implied(problems: Iterable[Problem], known: list[Problem]) -> list[Problem]:
    """``problems`` without those that are about, or need, a field with a known one, or one that stands misspelled."""
    bad = [problem.path for problem in known]
    misspelled = [problem.meant for problem in known if problem.meant is not None]

    def is_implied(place: Path) -> bool:
        # What is in a table with a misspelled name is right or wrong in itself.
        return any(_overlap(place, b) for b in bad) or any(place == meant[: len(place)] for meant in misspelled)

    return [p for p in problems if not any(map(is_implied, (p.path, *p.needs)))]


def _overlap(one: Path, other: Path) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def _syntax_problem(path: FilePath, text: str, error: tomllib.TOMLDecodeError) -> str:
    message, _, place = str(error).rpartition(" (at ")
    at_line = re.match(r"line (\d+), column (\d+)", place)
    line = int(at_line[1]) if at_line else text.count("\n") + 1
    column = f", column {at_line[2]}" if at_line else ""
    return f"{path}:{line}: is not TOML: {message or place}{column}; see https://toml.io"


def _line(path: FilePath, line: int, problem: Problem, raw: dict[str, Any]) -> str:
    value = value_at(raw, problem.path)
    return f"{path}:{line}: {problem.field}: {'' if value is MISSING else shown(value) + ': '}{problem.text}"
