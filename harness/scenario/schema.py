"""The JSON Schemas of scenario files, for editors: made from the models, so that they say what the loader does.

    python -m harness.scenario.schema      writes them again after a model has changed

An editor finds one by a first line such as ``#:schema ../scenario.schema.json``, or ``saver.schema.json`` where the
scenario is of a save function.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from harness.faults import KINDS
from harness.faults.base import At
from harness.scenario.effects import Effect
from harness.scenario.gradient import Gradient
from harness.scenario.metric import Metric
from harness.scenario.model import Broken, Expect, Scenario
from harness.scenario.saver import ExpectStates, SaverScenario
from harness.scenario.saves import SAVE_FAILPOINTS
from harness.scenario.wording import described
from harness.scenario.workloads import own_workload_names

SCHEMA_NAME = "scenario.schema.json"
SCHEMA_FILE = Path(__file__).parents[2] / "scenarios" / SCHEMA_NAME
SAVER_SCHEMA_FILE = SCHEMA_FILE.with_name("saver.schema.json")


def make_schema() -> dict[str, Any]:
    """A JSON Schema (draft 2020-12) with the descriptions of the model and of the fault kinds."""
    schema = Scenario.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "Scenario of a fault-injection run"
    _describe(schema, Scenario)
    for cls in (At, Broken, Effect, Expect, Gradient, Metric, *KINDS.values()):
        _describe(schema["$defs"][cls.__name__], cls)
    for cls in KINDS.values():  # a kind has its default only in code
        schema["$defs"][cls.__name__]["required"].insert(0, "kind")
        schema["$defs"][cls.__name__]["properties"]["kind"].pop("default")
    at = schema["$defs"]["At"]["properties"]
    moments = [f"{name}:{moment}" for name in SAVE_FAILPOINTS for moment in ("before", "after")]
    at["failpoint"]["examples"] = [*moments, *(name for name, point in SAVE_FAILPOINTS.items() if point.torn)]
    schema["properties"]["workload"]["examples"] = list(own_workload_names())
    return schema


def make_saver_schema() -> dict[str, Any]:
    """The same of scenarios of a save function."""
    schema = SaverScenario.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "Scenario of a save function and every crash that can meet it"
    _describe(schema, SaverScenario)
    _describe(schema["$defs"]["ExpectStates"], ExpectStates)
    return schema


def schema_text(schema: dict[str, Any] | None = None) -> str:
    """A schema as it stands in its file; by default that of scenarios of a workload."""
    return json.dumps(make_schema() if schema is None else schema, indent=2) + "\n"


def _describe(schema: dict[str, Any], cls: type) -> None:
    texts = described(cls)
    schema["description"] = (cls.__doc__ or "").strip().partition("\n")[0]
    for name, field in schema["properties"].items():
        field.pop("title", None)
        _drop_null(field)
        text = texts.get({"fault": "faults", "effect": "effects"}.get(name, name))
        if text is not None:
            field["description"] = text.replace("``", "")


def _drop_null(field: dict[str, Any]) -> None:
    """TOML has no null: what may be None is a field that may be left out."""
    types = [one for one in field.get("anyOf", []) if one != {"type": "null"}]
    if len(types) == 1:
        del field["anyOf"]
        field |= types[0]
    if "default" in field and field["default"] is None:
        del field["default"]


if __name__ == "__main__":
    for path, schema in ((SCHEMA_FILE, make_schema()), (SAVER_SCHEMA_FILE, make_saver_schema())):
        path.write_text(schema_text(schema))
        sys.stdout.write(f"wrote {path}\n")
