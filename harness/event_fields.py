"""Which fields each kind of event must have, which types its fields have, and a sentence for one that is otherwise.

What they mean is written down at ``harness.wire.Kind``. Fields that are not named here may be anything, as may those of
kinds that are not: a newer rank side may know more.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from types import GenericAlias, NoneType, UnionType
from typing import Any, get_args, get_origin

import msgspec

from harness.quoted import cut
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
    | _all(str, "python_random torch_random rng")  # rng: an older rank side had one digest of all generators
    | {"numpy_random": str | None}
    | {"lr": list[float], "ids": _IDS, "epoch": int | None, "batches": int, "sharded": bool}
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
    | {"code": int, "returned": dict[str, Returned], "at_once": bool, "torn_down": bool}
    | {"magnitudes": list[tuple[str, int, float, float]], "threads": list[str], "sources": list[str]},
}
# What the checks read of every event of a kind: without it they could say nothing. All other fields may be missing: an
# older rank side did not know them, or there was nothing to say.
REQUIRED: Mapping[Kind, str] = {
    Kind.START: "pid",
    Kind.GROUP: "group ranks",
    Kind.LOADER: "loader length",
    Kind.BATCH: "loader epoch index ids",
    Kind.LOADER_END: "loader epoch batches",
    Kind.COLLECTIVE: "group op numel",
    Kind.METRIC: "value problem",
    Kind.UPDATE: "params optimizer buffers lr ids epoch batches",
    Kind.SKIPPED: "ids batches",
    Kind.GRADIENT: "device names numel applied norm parts",
    Kind.STATE: "params optimizer buffers",
    Kind.SAVE_START: "path",
    Kind.SAVE_END: "path",
    Kind.SAVE_ERROR: "path error",
    Kind.LOAD_ERROR: "error",
    Kind.INVENTORY: "root entries",
    Kind.LOAD: "path loaded_step",
    Kind.FOREIGN_SAVE: "path",
    Kind.FOREIGN_LOAD: "path",
    Kind.SHM: "name",
    Kind.FAULT: "index fault",
    Kind.EFFECT: "index fault",
    Kind.EXCEPTION: "type message in_collective",
    Kind.EXIT: "code",
}
# ... beside it of the events of some faults.
OF_FAULT: Mapping[tuple[Kind, str], str] = {
    (Kind.FAULT, "short_loader"): "epoch length",
    (Kind.FAULT, "torn"): "effect part_bytes size_bytes",
    (Kind.EFFECT, "abort_group"): "connections communicators",
    (Kind.EFFECT, "change_reduction"): "before after",
    (Kind.EFFECT, "corrupt_collective"): "tensor elements",
    (Kind.EFFECT, "corrupt_sample"): "tensors elements",
    (Kind.EFFECT, "damage_file"): "before after",
    (Kind.EFFECT, "delay_collective"): "waited_s",
    (Kind.EFFECT, "drift_buffer"): "tensor elements",
    (Kind.EFFECT, "flip_bit"): "tensor elements",
    (Kind.EFFECT, "lose_batch"): "lost",
    (Kind.EFFECT, "move_latest"): "before after",
    (Kind.EFFECT, "nan_batch"): "tensors elements",
    (Kind.EFFECT, "overflow"): "gradients",
    (Kind.EFFECT, "repeat_batch"): "is_repeated repeated",
    (Kind.EFFECT, "retype_collective"): "before after",
    (Kind.EFFECT, "scale_lr"): "lr usual",
    (Kind.EFFECT, "skip_update"): "params",
    (Kind.EFFECT, "stalled_read"): "stalled_s",
    (Kind.EFFECT, "straggle"): "waited_s",
}
_DIFFERING = {Kind.FAULT, Kind.EFFECT, Kind.GRADIENT, Kind.EXIT}  # not each of these must have the same

_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_KINDS: Mapping[Any, str] = {int: "int", float: "float", str: "str", bool: "bool", list: "array", dict: "object"}


def wrong(kind: str, events: Sequence[Event]) -> Iterator[tuple[Event, str]]:
    """Each of these events, all of one kind, that lacks a field or has one of another type, and what is wrong."""
    if kind not in FIELDS:
        return
    known = Kind(kind)
    if known not in _DIFFERING:
        # All in one call: it takes half a microsecond for each.
        wanted = GenericAlias(list, (_struct(known, REQUIRED[known]),))
        if _problem([event.data for event in events], wanted) is None:
            return
    for event in events:
        if (said := _problem(event.data, _struct(known, _needed(known, event.data)))) is not None:
            yield event, _sentence(known, event.data, said)


def _needed(kind: Kind, data: Mapping[str, Any]) -> str:
    """The fields that this event must have."""
    usual = REQUIRED[kind]
    if kind in (Kind.FAULT, Kind.EFFECT) and "problem" not in data:  # which says why there is no more
        return f"{usual} {OF_FAULT.get((kind, str(data.get('fault'))), '')}"
    if kind is Kind.GRADIENT and "error" in data:
        return "error"
    if kind is Kind.EXIT and "params" in data:  # of a script that had a model
        return f"{usual} params optimizer buffers"
    return usual


@functools.cache
def _struct(kind: Kind, needed: str) -> Any:
    must = needed.split()
    fields: list[Any] = [(n, wanted) if n in must else (n, wanted, None) for n, wanted in FIELDS[kind].items()]
    return msgspec.defstruct(kind.name, fields, kw_only=True)


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


def missing(place: str, name: str, wanted: Any) -> str:
    """What is wrong with an event that has no such field; ``wanted`` is its type."""
    kinds = get_args(wanted) if isinstance(wanted, UnionType) else (wanted,)
    words = ["null" if kind is NoneType else _KINDS[get_origin(kind) or kind] for kind in kinds]
    return f"{place} has no {name}; it must be there: {' or '.join(map(_named, words))}"


def _shown(value: Any) -> str:
    return cut(json.dumps(value), MAX_SHOWN)


def _named(name: str) -> str:
    return _WORDS.get(name, name)


def _sentence(kind: Kind, data: Mapping[str, Any], said: str) -> str:
    """What msgspec says of it, in this project's words: "Expected `int | null`, got `str` - at `$.step`"."""
    if found := re.fullmatch(r"Object missing required field `([^`]*)`", said):
        return missing(f"this {kind} event", found[1], FIELDS[kind][found[1]])
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
