"""The JSON Schema that editors use says what the loader does."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from harness.faults import KINDS
from harness.scenario import SaverScenario, Scenario
from harness.scenario.schema import SAVER_SCHEMA_FILE, SCHEMA_FILE, make_saver_schema, make_schema, schema_text
from harness.scenario.wording import described
from harness.wire import GUARANTEE_NAMES

SCHEMAS = pytest.mark.parametrize(
    ("path", "schema"),
    [(SCHEMA_FILE, make_schema()), (SAVER_SCHEMA_FILE, make_saver_schema())],
    ids=["workload", "save function"],
)


@SCHEMAS
def test_the_stored_schema_is_the_models(path: Path, schema: dict[str, Any]) -> None:
    assert path.read_text() == schema_text(schema), "run: python -m harness.scenario.schema"


@SCHEMAS
def test_the_schema_describes_every_field(path: Path, schema: dict[str, Any]) -> None:
    described_fields = [
        (name, field, spec.get("description"))
        for name, part in [(path.stem, schema), *schema["$defs"].items()]
        for field, spec in part["properties"].items()
    ]
    assert [entry for entry in described_fields if not entry[2]] == []
    assert "null" not in json.dumps(schema)
    assert schema["additionalProperties"] is False


def test_the_schema_knows_every_name() -> None:
    schema = make_schema()
    fault = schema["properties"]["fault"]["items"]
    assert set(fault["discriminator"]["mapping"]) == set(KINDS)
    assert len(fault["oneOf"]) == len(KINDS)
    assert schema["$defs"]["Broken"]["properties"]["guarantee"]["enum"] == list(GUARANTEE_NAMES)


def test_the_descriptions_say_nothing_of_fields_that_are_not_there() -> None:
    for model in (Scenario, SaverScenario):
        assert set(described(model)) == set(model.model_fields)
    for cls in KINDS.values():
        assert set(described(cls)) == {field.name for field in dataclasses.fields(cls)}
