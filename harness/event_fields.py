"""Which types the fields of each kind of event have, and a sentence for one that has another.

What they mean is written down at ``harness.wire.Kind``. Fields that are not named here may be anything, as may those of
kinds that are not: a newer rank side may know more. That a field is not there is no matter of types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from types import GenericAlias
from typing import Any

import msgspec

from harness.wire import Event, Kind

MAX_SHOWN = 60  # characters of a value


class Returned(msgspec.Struct):
    calls: int
    last: str
    raised: int = 0


class Checkpoint(msgspec.Struct):
    name: str
    step: int | None
    verdict: str
    reason: str | None
    manifest: str | None


class Head(msgspec.Struct):
    count: float
    weight: float
    sum: list[list[float]]


class Part(msgspec.Struct):
    samples: int | None
    has_drawn: bool
    heads: dict[str, Head]


Fields = dict[str, Any]  # name -> type


def _all(kind: Any, names: str) -> Fields:
    return dict.fromkeys(names.split(), kind)


_STATE = _all(str, "params optimizer") | {"buffers": str | None}
_IDS: Any = list[int] | None

FIELDS: Mapping[Kind, Fields] = {
    Kind.START: _all(int, "pid local_rank world_size local_world_size master_port")
    | _all(str, "host master_addr device script python torch"),
    Kind.GROUP: {"group": str, "ranks": list[int], "backend": str},
    Kind.LOADER: _all(int, "loader epoch")
    | _all(int | None, "length data samples padding")
    | {"site": str | None, "distributed": bool},
    Kind.BATCH: _all(int, "loader epoch index") | {"ids": _IDS, "aside": bool},
    Kind.LOADER_END: _all(int, "loader epoch batches"),
    Kind.COLLECTIVE: _all(str, "group op faulted")
    | _all(str | None, "reduce_op dtype site")
    | _all(int, "call numel left_out")
    | _all(bool, "aside implied")
    | {"root": int | None, "returned": dict[str, Returned]},
    Kind.METRIC: {"value": float | None, "problem": str | None},
    Kind.UPDATE: _STATE
    | {"rng": str, "lr": list[float], "ids": _IDS, "epoch": int | None, "batches": int, "sharded": bool}
    | {"scaler": list[list[float]] | None},
    Kind.SKIPPED: {"ids": _IDS, "batches": int},
    Kind.GRADIENT: _all(str, "error device")
    | {"names": list[str], "numel": int, "applied": list[list[float]], "norm": float, "parts": list[Part]},
    Kind.STATE: _STATE | _all(int | None, "matched_step claimed_step"),
    Kind.SAVE_START: {"path": str, "pending": list[int]},
    Kind.SAVE_END: {"path": str, "manifest": str | None},
    Kind.SAVE_ERROR: _all(str, "path error") | {"ranks": list[int]},
    Kind.LOAD_ERROR: _all(str, "path error") | {"ranks": list[int]},
    Kind.INVENTORY: _all(str, "root why") | {"entries": list[Checkpoint]},
    Kind.LOAD: _all(str | None, "path manifest") | {"loaded_step": int | None, "candidates": list[Checkpoint]},
    Kind.FOREIGN_SAVE: {"by": str, "path": str | None},
    Kind.FOREIGN_LOAD: {"by": str, "path": str | None},
    Kind.SHM: {"name": str},
    Kind.FAULT: _all(str, "fault effect") | _all(int, "index part_bytes size_bytes") | _all(int | None, "epoch length"),
    Kind.EFFECT: _all(int, "index before_it communicators connections elements gradients tensors")
    | _all(str, "fault params problem tensor values")
    | _all(str | None, "damaged before after")
    | _all(float, "stalled_s waited_s")
    | _all(list[float], "lr usual")
    | _all(_IDS, "lost repeated")
    | {"is_repeated": bool},
    Kind.EXCEPTION: _all(str, "type message")
    | {"site": str | None, "in_collective": bool, "returned": dict[str, Returned]},
    Kind.EXIT: _all(str | None, "params optimizer buffers")
    | {"code": int, "returned": dict[str, Returned], "at_once": bool}
    | {"magnitudes": list[tuple[str, int, float, float]], "threads": list[str], "sources": list[str]},
}
_EVENTS: Mapping[str, Any] = {
    kind: msgspec.defstruct(kind.name, [(name, wanted, None) for name, wanted in fields.items()])
    for kind, fields in FIELDS.items()
}
_LISTS: Mapping[str, Any] = {kind: GenericAlias(list, (event,)) for kind, event in _EVENTS.items()}

_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def mistyped(kind: str, events: Sequence[Event]) -> Iterator[tuple[Event, str]]:
    """Each of these events, all of one kind, that has a field of another type, and what is wrong with it."""
    # All in one call: it takes half a microsecond for each.
    if kind in _LISTS and _problem([event.data for event in events], _LISTS[kind]) is not None:
        for event in events:
            if said := _problem(event.data, _EVENTS[kind]):
                yield event, _sentence(kind, event.data, said)


def _problem(value: Any, wanted: Any) -> str | None:
    """What msgspec says of it; empty if it cannot tell, for the text is none that could be written again, say."""
    try:
        msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        return str(error)
    except (UnicodeError, RecursionError):
        return ""
    return None


def must_be(place: str, value: Any, types: str, more: str = "") -> str:
    """What is wrong with the value at ``place`` of an event; ``types`` as msgspec names them: ``int | null``."""
    return f"{place} is {_shown(value)}; it must be {' or '.join(map(_named, types.split(' | ')))}{more}"


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."


def _named(name: str) -> str:
    return _WORDS.get(name, name)


def _sentence(kind: str, data: Mapping[str, Any], said: str) -> str:
    """What msgspec says of it, in this project's words: "Expected `int | null`, got `str` - at `$.step`"."""
    what, _, path = said.removesuffix("`").partition(" - at `$.")
    value: Any = data
    for name, place in re.findall(r"(\w+)|\[(\d+)\]", path.partition("[...]")[0]):
        value = value[int(place) if place else name]
    place = f"{path} of this {kind} event"
    if found := re.fullmatch(r"Expected `([^`]*)`(.*?), got .*", what):
        return must_be(place, value, found[1], found[2])
    if found := re.fullmatch(r"Object missing required field `(.*)`", what):
        return f"{place} is {_shown(value)}; it has no {found[1]}"
    return f"{place} is {_shown(value)}: {what}"
