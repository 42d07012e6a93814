"""The JSON Schema that editors use says what the loader does."""

from __future__ import annotations

import dataclasses
import json

from harness.faults import KINDS
from harness.scenario import Scenario
from harness.scenario.schema import SCHEMA_FILE, make_schema, schema_text
from harness.scenario.wording import described
from harness.wire import GUARANTEE_NAMES


def test_the_stored_schema_is_the_models() -> None:
    assert SCHEMA_FILE.read_text() == schema_text(), "run: python -m harness.scenario.schema"


def test_the_schema_describes_every_field_and_knows_every_name() -> None:
    schema = make_schema()
    described_fields = [
        (name, field, spec.get("description"))
        for name, part in [("Scenario", schema), *schema["$defs"].items()]
        for field, spec in part["properties"].items()
    ]
    assert [entry for entry in described_fields if not entry[2]] == []
    fault = schema["properties"]["fault"]["items"]
    assert set(fault["discriminator"]["mapping"]) == set(KINDS)
    assert len(fault["oneOf"]) == len(KINDS)
    assert schema["$defs"]["Broken"]["properties"]["guarantee"]["enum"] == list(GUARANTEE_NAMES)
    assert "null" not in json.dumps(schema)
    assert schema["additionalProperties"] is False


def test_the_descriptions_say_nothing_of_fields_that_are_not_there() -> None:
    assert set(described(Scenario)) == set(Scenario.model_fields)
    for cls in KINDS.values():
        assert set(described(cls)) == {field.name for field in dataclasses.fields(cls)}
