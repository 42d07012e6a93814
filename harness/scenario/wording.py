"""What is wrong with a field, in this project's words: the value, what is allowed, and the nearest known name."""

from __future__ import annotations

import difflib
import inspect
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel, ValidationError

from harness.faults import KINDS, Fault
from harness.faults.base import At
from harness.quoted import cut
from harness.scenario.effects import Effect
from harness.scenario.gradient import Gradient
from harness.scenario.metric import Metric
from harness.scenario.model import Broken, Expect, Scenario
from harness.scenario.saver import ExpectStates
from harness.scenario.toml_lines import Path

MISSING = object()  # stands for the value of a field that is not there
_MAX_VALUE_CHARS = 60
ARRAYS = ("fault", "effect")  # of tables, which stand at the end of a file
_RANK = "must be a rank from 0, a list of ranks, 'all', 'nonzero' or 'last'"
_TYPES = {
    "string_type": "must be a string in quotes",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "tuple_type": "must be a list: [ ... ]",
    "list_type": "must be a list: [ ... ]",
    "dict_type": "must be a table: { ... }",
    "dataclass_type": "must be a table: { ... }",
}


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        path: of the field, as in the parsed TOML: ``("fault", 0, "at", "step")``.
        text: what is wrong, what is allowed, and the cure.
        needs: further fields that must be right themselves for this to be true.
        nearest: the known value that was probably meant, None for a field's name.
        meant: of a field with an unknown name, the one that it was probably meant to be, which is not given itself.
    """

    path: Path
    text: str
    needs: tuple[Path, ...] = ()
    nearest: str | None = None
    meant: Path | None = None

    @property
    def field(self) -> str:
        """``fault[0].at.step``."""
        return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.path).lstrip(".")


def unknown_name(path: Path, value: Any, known: Sequence[str], what: str) -> Problem:
    """``value`` is none of the ``known`` names of ``what``."""
    near = difflib.get_close_matches(str(value), known, n=1)
    hint = f" did you mean '{near[0]}'?" if near else ""  # first: the list may be long
    allowed = ", ".join(known) or "none"
    return Problem(path, f"unknown {what};{hint} allowed: {allowed}", nearest=near[0] if near else None)


def single_bracket(name: str) -> Problem:
    """``name`` is not written as an array of tables."""
    return Problem((name,), f"must be an array of tables: write [[{name}]] with two brackets above each {name}")


def value_at(raw: Any, path: Path) -> Any:
    """What stands at ``path`` of the parsed TOML, or MISSING."""
    for key in path:
        try:
            raw = raw[key]
        except (KeyError, IndexError, TypeError):
            return MISSING
    return raw


def either(names: Sequence[object]) -> str:
    """``a or b or c``."""
    return " or ".join(str(name) for name in names)


def shown(value: Any) -> str:
    """``value`` as it may stand in a message: short, and on one line."""
    return cut(json.dumps(value, ensure_ascii=False, default=str), _MAX_VALUE_CHARS)


def described(cls: type) -> dict[str, str]:
    """Field name -> description, from the ``Attributes:`` sections of the docstrings of a class and its bases."""
    found: dict[str, str] = {}
    for base in (base for base in reversed(cls.__mro__) if base.__module__.startswith("harness.")):
        _, _, section = inspect.cleandoc(base.__doc__ or "").partition("\nAttributes:\n")
        entries = re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", section.partition("\n\n")[0], re.MULTILINE)
        found |= {name: " ".join(text.split()) for name, text in entries}
    return found


def problems_of(error: ValidationError, raw: Any, model: type[BaseModel] = Scenario) -> list[Problem]:
    """One problem a field, in the order of ``model``."""
    found: dict[Path, Problem] = {}
    for detail in error.errors(include_url=False, include_input=False):
        cls = _class_around(detail["loc"], model)
        problem = _problem(detail["type"], detail["loc"], detail["msg"], detail.get("ctx", {}), raw, cls, model)
        found.setdefault(problem.path, problem)  # a field of several types is reported once for each of them
    return list(found.values())


def _problem(
    kind: str, loc: Path, message: str, context: dict[str, Any], raw: Any, around: type, model: type[BaseModel]
) -> Problem:
    path: Path = (*loc[:2], *loc[3:]) if loc[0] == "fault" else loc  # pydantic puts the fault's kind in between
    name = str(path[-1])
    if len(path) > 2 and path[0] == "fault" and path[2] == "rank" and kind != "missing":
        return Problem(path[:3], _RANK)
    if len(path) == 1 and name in ARRAYS and kind == "tuple_type":
        return single_bracket(name)
    match kind:
        case "extra_forbidden" | "unexpected_keyword_argument":
            problem = unknown_name(path, name, _fields_of(around), "field")
            if len(path) > 1 and name in _fields_of(model):
                above = f"[[{path[0]}]]" if path[0] in ARRAYS else f"[{path[0]}]"
                other = f"is a field of the whole scenario: write it above the first {above}"
                text = other if problem.nearest is None else f"{problem.text}; '{name}' {other}"
                problem = replace(problem, text=text)
            return replace(problem, nearest=None, meant=_meant(path, problem.nearest, raw))
        case "missing":
            meaning = described(around).get(name, "required").rstrip(".")
            if path == ("expect",):
                meaning += f'; write [expect], and below it outcome = "...", one of: {", ".join(_outcomes(model))}'
            return Problem(path, f"missing: {meaning}")
        case "literal_error":
            names = re.findall(r"'([^']*)'", context["expected"])
            return unknown_name(path, value_at(raw, path), names, "value")
        case "union_tag_not_found":
            if near := difflib.get_close_matches("kind", value_at(raw, path), n=1):
                problem = unknown_name((*path, near[0]), near[0], _fields_of(Fault), "field")
                return replace(problem, nearest=None, meant=_meant(problem.path, problem.nearest, raw))
            return Problem((*path, "kind"), f"missing; allowed: {', '.join(KINDS)}")
        case "union_tag_invalid":
            return unknown_name((*path, "kind"), context["tag"], list(KINDS), "kind of fault")
    text = _TYPES.get(kind, message.replace("Input should be", "must be").replace(" item after validation", ""))
    return Problem(path, text)


def _meant(path: Path, near: str | None, raw: Any) -> Path | None:
    there = value_at(raw, path[:-1])
    return (*path[:-1], near) if near is not None and isinstance(there, dict) and near not in there else None


def _class_around(loc: Path, model: type[BaseModel]) -> type:
    """The class that the last key of a pydantic location is a field of."""
    match loc:
        case ("fault", int(), str(), "at", _):
            return At
        case ("fault", int(), str(kind), _):
            return KINDS[kind]
        case ("effect", int(), _):
            return Effect
        case ("metric", _):
            return Metric
        case ("expect", "broken", int(), _):
            return Broken
        case ("gradient", _):
            return Gradient
        case ("expect", _):
            return Expect if model is Scenario else ExpectStates
    return model


def _outcomes(model: type[BaseModel]) -> Sequence[str]:
    return get_args(get_type_hints(Expect if model is Scenario else ExpectStates)["outcome"])


def _fields_of(cls: type) -> list[str]:
    if issubclass(cls, BaseModel):
        return [field.alias or name for name, field in cls.model_fields.items()]
    return list(inspect.signature(cls).parameters)
