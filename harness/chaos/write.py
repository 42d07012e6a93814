"""A scenario as a file: what chaos found, for a person to read and for pytest to run."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.errors import ScenarioError
from harness.faults import Fault
from harness.faults.base import At
from harness.scenario import Scenario
from harness.scenario.workloads import is_own_script

TABLES = ("faults", "effects", "expect", "metric", "gradient", "env")


def write_scenario(scenario: Scenario, folder: Path, name: str, comment: Sequence[str]) -> Path:
    """Write it under a name that is free, beginning with ``name``; returns the path.

    Raises:
        ScenarioError: the folder cannot be written.
    """
    text = scenario_text(_seen_from(folder.absolute(), scenario), comment)
    slug = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")[:100]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            path = folder / f"{slug}{f'_{number}' if number > 1 else ''}.toml"
            try:
                with path.open("x", encoding="utf-8") as file:
                    file.write(text)
            except FileExistsError:
                if path.read_text(encoding="utf-8") == text:
                    return path
                continue
            return path
    except OSError as error:
        cure = "make it writable, or choose another with --chaos-out DIR"
        raise ScenarioError([f"{folder}: cannot be written: {error.strerror}; {cure}"]) from error
    raise AssertionError("numbers do not end")


def _seen_from(folder: Path, scenario: Scenario) -> Scenario:
    """With the paths of the user's files as they are from a file in this folder."""
    found: dict[str, Any] = {}
    if is_own_script(scenario.workload):
        found["workload"] = os.path.relpath(scenario.script, folder)
    if scenario.metric is not None:
        reference = os.path.relpath(str(scenario.reference_path), folder)
        found["metric"] = dataclasses.replace(scenario.metric, reference=reference)
    if scenario.gradient is not None:
        found["gradient"] = dataclasses.replace(
            scenario.gradient, losses=os.path.relpath(str(scenario.losses_path), folder)
        )
    return scenario.model_copy(update=found)


def scenario_text(scenario: Scenario, comment: Sequence[str] = ()) -> str:
    """The file's text; what has its default is left out."""
    lines = [line for text in comment for line in textwrap.wrap(text, 118, initial_indent="# ", subsequent_indent="# ")]
    for name, field in Scenario.model_fields.items():
        value = getattr(scenario, name)
        told = {"steps": scenario.planned_steps, "save_every": scenario.planned_save_every}
        is_told = told[name] is not None if name in told else name in ("workload", "ranks")
        if name not in TABLES and (value != field.default or is_told):
            lines.append(f"{name} = {_value(value)}")
    if scenario.env:
        lines += ["", "[env]", *(f"{_value(name)} = {_value(value)}" for name, value in scenario.env.items())]
    for name, table in (("metric", scenario.metric), ("gradient", scenario.gradient)):
        lines += ["", f"[{name}]", *_fields(table)] if table is not None else []
    for effect in scenario.effects:
        lines += ["", "[[effect]]", *_fields(effect)]
    for fault in scenario.faults:
        lines += ["", "[[fault]]", *_fault(fault)]
    lines += ["", "[expect]", *_fields(scenario.expect)]
    return "\n".join(lines) + "\n"


def _fault(fault: Fault) -> Iterator[str]:
    yield f"kind = {_value(fault.kind)}"
    yield f"rank = {_value(fault.rank)}"
    settings = [field.name for field in dataclasses.fields(fault) if field.name not in ("kind", "rank", "at")]
    yield from _fields(fault, settings)
    given = [f for f in dataclasses.fields(At) if getattr(fault.at, f.name) != f.default]
    yield f"at = {{ {', '.join(f'{f.name} = {_value(getattr(fault.at, f.name))}' for f in given)} }}"


def _fields(holder: Any, names: Sequence[str] | None = None) -> Iterator[str]:
    for field in dataclasses.fields(holder):
        value = getattr(holder, field.name)
        if (names is None or field.name in names) and value != field.default:
            yield f"{field.name} = {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    # JSON's strings, numbers and booleans are TOML's, but for the characters that JSON leaves as they are.
    return json.dumps(value).replace("\x7f", "\\u007f")
