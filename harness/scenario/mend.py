"""Something right in the place of what is wrong, so that one mistake in a scenario file does not hide the others."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any, Literal

from pydantic import BaseModel

from harness.faults import KINDS
from harness.scenario.saver import SaverScenario
from harness.scenario.wording import Problem, value_at

_AN_EFFECT = {"lines": "{run_dir}/lines", "key": ["step"]}
_A_FAULT = {"kind": "kill", "rank": 0, "at": {"step": 1}}  # right in every scenario that is right by itself
_A_GUARANTEE = "FaultFired"  # no table is needed for it
_STAND_INS = {int: 1, float: 1.0, str: "stand-in"}


def mend(raw: dict[str, Any], problem: Problem, model: type[BaseModel]) -> bool:
    """Put the nearest known value, a stand-in, or the default in the place of what is wrong; returns True.

    What stands under an unknown name is put where it was probably meant to be.
    """
    if problem.meant is not None:
        around = value_at(raw, problem.path[:-1])
        around[problem.meant[-1]] = around.pop(problem.path[-1])
        return True
    match problem.path:
        case ("workload" | "saver" as name,):
            raw[name] = "stand-in"
        case ("effect", int(n), "key"):
            raw["effect"][n]["key"] = ["step"]
        case ("expect",) | ("expect", "outcome"):
            outcome = problem.nearest or ("valid" if model is SaverScenario else "stops")
            raw["expect"] = {**_table(raw.get("expect")), "outcome": outcome}
        case ("expect", "broken", int(n), "guarantee"):
            raw["expect"]["broken"][n]["guarantee"] = problem.nearest or _A_GUARANTEE
        case ("fault", int(n)):
            raw["fault"][n] = dict(_A_FAULT)
        case ("fault", int(n), "kind") if problem.nearest is None:  # its rank and place can be judged all the same
            raw["fault"][n] = _A_FAULT | {name: raw["fault"][n][name] for name in _A_FAULT if name in raw["fault"][n]}
            raw["fault"][n]["kind"] = _A_FAULT["kind"]
        case ("fault", int(n), "rank"):
            raw["fault"][n]["rank"] = 0
        case ("fault", int(n), str(name)) if problem.nearest is None and name in _required(raw["fault"][n]):
            raw["fault"][n][name] = _stand_in(raw["fault"][n]["kind"], name)
        case (*around, last):
            container = value_at(raw, tuple(around))
            if problem.nearest is not None:
                container[last] = problem.nearest
            elif isinstance(container, list):  # the list goes: without an item the others would get other numbers
                value_at(raw, tuple(around[:-1])).pop(around[-1])
            elif isinstance(container, dict):
                container.pop(last, None)
    return True


def clear(raw: dict[str, Any], problem: Problem, _: type[BaseModel]) -> bool:
    """Take out all of what could not be mended bit by bit; returns False if nothing was there to take out."""
    match problem.path:
        case ("fault", int(n), *_):
            raw["fault"][n] = dict(_A_FAULT)
        case ("effect", int(n), *_):
            raw["effect"][n] = dict(_AN_EFFECT)
        case ("expect", "broken", *_):
            raw["expect"]["broken"] = []
        case (first, *_):
            return raw.pop(str(first), None) is not None
    return True


def _required(fault: dict[str, Any]) -> list[str]:
    """The fields without a default of the kind that the fault says it is."""
    kind = KINDS.get(str(fault.get("kind")))
    return [] if kind is None else [field.name for field in dataclasses.fields(kind) if _has_no_default(field)]


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _stand_in(kind: str, name: str) -> Any:
    hint = typing.get_type_hints(KINDS[kind])[name]
    return typing.get_args(hint)[0] if typing.get_origin(hint) is Literal else _STAND_INS[hint]


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
