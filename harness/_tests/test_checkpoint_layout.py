"""Names, manifest and marker: what is taken for a checkpoint, and that nothing hostile gets through."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.checkpoint import layout

ATTEMPT = "0-00000000000000aa"
FILES = tuple(
    layout.FileRecord(name=name, size_bytes=3, sha256="ab" * 32, rank=rank)
    for name, rank in (("model.pt", 0), ("rank-0.pt", 0), ("rank-1.pt", 1))
)
MANIFEST = layout.Manifest(
    step=10, attempt=ATTEMPT, parent=None, world_size=2, config={"lr": 0.1}, made_with={"torch": "2"}, files=FILES
)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step-0", 0),
        ("step-10", 10),
        (f"step-{10**18 - 1}", 10**18 - 1),
        (f"step-{10**18}", None),
        ("step-010", None),
        ("step-\uff11\uff10", None),
        ("step-10\n", None),
        ("step-10.backup", None),
        ("step--1", None),
        ("Step-10", None),
        ("xstep-10", None),
        ("step-", None),
    ],
    ids=repr,
)
def test_only_one_name_has_a_step(name: str, step: int | None) -> None:
    assert layout.step_of(name) == step


@given(st.integers(0, 10**18 - 1))
def test_names_are_read_back(step: int) -> None:
    assert layout.step_of(layout.step_name(step)) == step
    assert layout.staging_of(layout.staging_name(step, ATTEMPT)) == (step, ATTEMPT)
    assert layout.trash_of(f".trash-{ATTEMPT}-step-{step}-2") == (step, ATTEMPT)


@pytest.mark.parametrize(
    ("name", "is_trace"),
    [
        ("latest", True),
        ("step-15.backup", True),
        ("checkpoint-100", True),
        (".corrupt-x-step-5", True),
        (".trash-x", True),
        (f".step-5.tmp-{ATTEMPT}", False),
        (".lock", False),
        ("ATTEMPT", False),
        (".latest.tmp", False),
        ("lost+found", False),
        ("metrics.db", False),
    ],
)
def test_a_trace_is_what_says_that_there_was_a_checkpoint(name: str, is_trace: bool) -> None:
    assert layout.traces([name]) == [name] * is_trace


def test_a_manifest_is_read_back() -> None:
    assert layout.parse_manifest(MANIFEST.to_bytes()) == MANIFEST


BAD_FIELDS: dict[str, dict[str, Any]] = {
    "another format": {"format": "other/1"},
    "a step that is no number": {"step": "10"},
    "a step that is a truth value": {"step": True},
    "a negative step": {"step": -1},
    "no ranks": {"world_size": 0},
    "more ranks than files": {"world_size": 3},
    "fewer ranks than files": {"world_size": 1},
    "an attempt that leads out": {"attempt": "../x"},
    "a parent that is no digest": {"parent": "x"},
    "a config that is a list": {"config": []},
    "files that are no list": {"files": {}},
    "a file that is no object": {"files": ["model.pt"]},
    "a file listed twice": {"files": [dataclasses.asdict(f) for f in (FILES[0], *FILES)]},
    "files out of order": {"files": [dataclasses.asdict(f) for f in reversed(FILES)]},
}
BAD_FILE_FIELDS: dict[str, dict[str, Any]] = {
    "a name that leads out": {"name": "../model.pt"},
    "an absolute name": {"name": "/etc/passwd"},
    "a name with a null byte": {"name": "model\0.pt"},
    "the marker's name": {"name": "COMPLETE"},
    "a name with a newline": {"name": "model.pt\n"},
    "a rank with a leading zero": {"name": "rank-00.pt"},
    "another rank's file": {"name": "rank-7.pt"},
    "a name that is a number": {"name": 7},
    "a negative size": {"size_bytes": -1},
    "an enormous size": {"size_bytes": 10**30},
    "a digest in upper case": {"sha256": "AB" * 32},
}
for _words, _fields in BAD_FILE_FIELDS.items():
    _first = {**dataclasses.asdict(FILES[0]), **_fields}
    BAD_FIELDS[_words] = {"files": [_first, *(dataclasses.asdict(f) for f in FILES[1:])]}


@pytest.mark.parametrize("fields", BAD_FIELDS.values(), ids=BAD_FIELDS)
def test_a_manifest_is_refused_with(fields: dict[str, Any]) -> None:
    raw = {**json.loads(MANIFEST.to_bytes()), **fields}
    with pytest.raises(layout.Damaged, match=r"MANIFEST\.json"):
        layout.parse_manifest(json.dumps(raw).encode())


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_is_done_to_a_manifest_it_is_refused_or_read(data: st.DataObject) -> None:
    manifest = bytearray(MANIFEST.to_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(manifest) - 1))
        manifest[position : position + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        parsed = layout.parse_manifest(bytes(manifest))
    except layout.Damaged:
        return
    assert all(layout.is_checkpoint_file(f.name) and "/" not in f.name for f in parsed.files)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)
    )
)
def test_any_json_is_refused_or_read(value: Any) -> None:
    with pytest.raises(layout.Damaged):
        layout.parse_manifest(json.dumps(value).encode())
