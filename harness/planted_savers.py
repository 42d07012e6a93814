"""Savers and readers with one bug each, what each must be found to do, and the healthy ones that must be left in peace.

They live in ``workloads/planted/savers/``, with the table ``expected.toml``, and in ``workloads/savers/``; only the
table is read here, the scripts are imported by the process that runs them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness.crashstates.models import MODEL_NAMES, ModelName
from harness.crashstates.trouble import TROUBLES
from harness.crashstates.verdict import SAFE, VERDICTS, Verdict
from harness.errors import HarnessError

_TEXTS = ("source", "finding", "crash")
_FIELDS = frozenset({*_TEXTS, "verdicts", "model", "trouble", "undisturbed"})
_FAILURES = [name for name in VERDICTS if name not in SAFE and name != "not-triggered"]


@dataclass(frozen=True, kw_only=True)
class PlantedSaver:
    """One planted bug.

    Attributes:
        source: the public report that it retells, or the idea.
        verdicts: each must be that of some state.
        model: the weakest under which it fails; None: no crash harms it.
        trouble: under which it fails then; None: it fails under a crash.
        finding: a piece of what the report on it must say.
        crash: the state that shows it, in words.
        undisturbed: without a crash it saves and loads as it should.
    """

    file: Path
    source: str
    verdicts: tuple[Verdict, ...]
    finding: str
    crash: str
    model: ModelName | None = None
    trouble: str | None = None
    undisturbed: bool = True

    @property
    def name(self) -> str:
        return self.file.stem


def planted_savers() -> list[PlantedSaver]:
    """All planted savers, in the order of the table.

    Raises:
        HarnessError: the package ``workloads`` is not installed; or the table is wrong, with every problem in it.
    """
    return read_table(_workloads() / "planted" / "savers" / "expected.toml")


def healthy_savers() -> list[Path]:
    """The scripts that no crash harms.

    Raises:
        HarnessError: the package ``workloads`` is not installed.
    """
    return _scripts(_workloads() / "savers")


def read_table(path: Path) -> list[PlantedSaver]:
    """The planted savers that ``path`` tells of; the scripts are beside it.

    Raises:
        HarnessError: it cannot be read, or is wrong; carries every problem in it.
    """
    try:
        table = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise HarnessError(f"{path} cannot be read: {error}") from error
    scripts = {script.stem: script for script in _scripts(path.parent)}
    problems = [f"{name}: there is no {name}.py beside the table" for name in table.keys() - scripts.keys()]
    problems += [f"{name}.py is not in the table" for name in scripts.keys() - table.keys()]
    problems += [f"{name}: {problem}" for name, row in table.items() for problem in _problems(row)]
    if problems:
        raise HarnessError("\n".join(f"{path}: {problem}" for problem in sorted(problems)))
    return [
        PlantedSaver(file=scripts[name], **{**row, "verdicts": tuple(row["verdicts"])}) for name, row in table.items()
    ]


def _problems(row: object) -> Iterator[str]:
    if not isinstance(row, Mapping):
        yield f"is {row!r}; it must be a table"
        return
    yield from _field_problems(row)


def _field_problems(row: Mapping[str, Any]) -> Iterator[str]:
    for field in sorted(row.keys() - _FIELDS):
        yield f"{field} is unknown; allowed: {', '.join(sorted(_FIELDS))}"
    for field in _TEXTS:
        if not isinstance(row.get(field), str) or not row[field]:
            yield f"{field} is {row.get(field)!r}; it must be a text"
    verdicts = row.get("verdicts")
    if not isinstance(verdicts, list) or not verdicts or any(verdict not in _FAILURES for verdict in verdicts):
        yield f"verdicts is {verdicts!r}; it must list at least one of {', '.join(_FAILURES)}"
    for field, allowed in (("model", MODEL_NAMES), ("trouble", tuple(TROUBLES))):
        if field in row and row[field] not in allowed:
            yield f"{field} is {row[field]!r}; allowed: {', '.join(allowed)}"
    if ("model" in row) == ("trouble" in row):
        yield "it must have one of model (what kind of crash harms it) and trouble (no crash does)"
    if not isinstance(row.get("undisturbed", True), bool):
        yield f"undisturbed is {row['undisturbed']!r}; allowed: true, false"


def _workloads() -> Path:
    spec = find_spec("workloads")
    places = [Path(place) for place in (spec.submodule_search_locations or ())] if spec is not None else []
    for place in places:
        if (place / "planted" / "savers").is_dir():
            return place
    raise HarnessError("no planted savers found: run from a checkout of this project, or install its `workloads`")


def _scripts(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("*.py") if path.name != "__init__.py")
