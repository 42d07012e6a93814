"""Does what the world outside sees of a job stand there once, although the job did some of its updates twice?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from harness.checks.base import Verdict, guarantee, invalid, not_applicable, unknown, valid
from harness.checks.records import begun, ended_well, unplaced
from harness.effects import Found, key_of
from harness.history import Baseline, History
from harness.scenario.effects import Effect
from harness.wire import EFFECTS_JSON, Kind

Row = Mapping[str, Any]


@guarantee("EffectsOnce", "each external side effect, keyed by run id and global step, stands once, as it should be")
def effects_once(history: History, baseline: Baseline | None) -> Verdict:
    effects = history.plan.effects
    if not effects:
        return not_applicable("the scenario names no side effects; a table [[effect]] says where they are")
    if len(history.effects) != len(effects):
        return unknown(f"the side effects were not kept after the run: {EFFECTS_JSON} is missing")
    if history.plan.start_from is not None and (state := unplaced(history)) is not None:
        return unknown(f"nothing tells at which step rank {state.rank} began", state)
    wanted = () if baseline is None else baseline.effects
    found = [
        _judge(history, effect, history.effects[n], wanted[n] if n < len(wanted) else None)
        for n, effect in enumerate(effects)
    ]
    for outcome in ("invalid", "unknown"):
        if (first := next((verdict for verdict in found if verdict.outcome == outcome), None)) is not None:
            return first
    return valid("; ".join(verdict.reason for verdict in found))


def _judge(history: History, effect: Effect, found: Found, wanted: Found | None) -> Verdict:
    if found.problem:
        said = f"{effect.name}: {found.problem}"
        is_sound = wanted is not None and not wanted.problem
        return invalid(f"{said}; after the fault-free run it could be read") if is_sound else unknown(said)
    problems = [*_twice(history, effect, found)]
    if wanted is not None and not wanted.problem:
        problems += _unlike(history, effect, found, wanted)
    if problems:
        return min(problems, key=lambda verdict: verdict.step or 0)
    if wanted is None or wanted.problem:
        why = "there is no fault-free run" if wanted is None else f"the fault-free run does not tell: {wanted.problem}"
        return unknown(f"{effect.name}: {len(found.rows)} effects stand once; which there must be, {why}")
    return valid(f"{effect.name}: {len(found.rows)} effects, each of which stands once")


def _twice(history: History, effect: Effect, found: Found) -> Iterator[Verdict]:
    by_key: dict[str, list[Row]] = {}
    for row in found.rows:
        by_key.setdefault(key_of(row, effect), []).append(row)
    for rows in by_key.values():
        if len(rows) > 1:
            said = f"{_named(effect, rows[0])} stands {len(rows)} times"
            yield _broken(history, effect, rows[0], said, {"first": rows[0], "again": rows[1]})


def _unlike(history: History, effect: Effect, found: Found, wanted: Found) -> Iterator[Verdict]:
    """What is missing, is there and should not be, or is another than in the fault-free run."""
    ours, due = ({key_of(row, effect): row for row in rows} for rows in (found.rows, wanted.rows))
    since = begun(history)  # what an earlier run had done, it had told the world by itself
    if effect.has_step or (ended_well(history) and not since):
        for key, row in ours.items():
            if key not in due:
                said = f"{_named(effect, row)} is there, and the fault-free run has no such effect"
                yield _broken(history, effect, row, said, {"seen": row})
            elif differing := _differing(effect, row, due[key], wanted, history):
                column = differing[0]
                right = f"the fault-free run {due[key][column]}" if column in due[key] else "the fault-free run none"
                said = f"{_named(effect, row)} has {column} = {row.get(column)}, {right}"
                yield _broken(history, effect, row, said, {"seen": row, "fault-free": due[key]})
    for key, row in due.items() if ended_well(history) else ():
        if key not in ours and (not since or (_step(effect, row) or 0) > since):
            yield _broken(history, effect, row, f"{_named(effect, row)} is missing", {"fault-free": row})


def _differing(effect: Effect, row: Row, due: Row, wanted: Found, history: History) -> list[str]:
    """The columns that should be alike and are not; floats need not be where the scenario states a tolerance."""
    return [
        column
        for column in {**due, **row}
        if column not in effect.ignore
        and column not in wanted.varying
        and json.dumps(row.get(column)) != json.dumps(due.get(column))
        and not (history.plan.tolerance is not None and isinstance(row.get(column), float))
    ]


def _broken(history: History, effect: Effect, row: Row, said: str, seen: dict[str, Any]) -> Verdict:
    step = _step(effect, row)
    launches = [] if step is None else sorted({e.restart for e in history.of(Kind.UPDATE, step=step)})
    if len(launches) > 1:
        said += f"; update {step} was done by launches {', '.join(map(str, launches))}"
    elif launches and history.restarts:
        said += f"; update {step} was done by launch {launches[0]}"
    return invalid(said, step=step, restart=launches[-1] if launches else None, file=EFFECTS_JSON, seen=seen)


def _named(effect: Effect, row: Row) -> str:
    return f"{', '.join(f'{column} = {row[column]}' for column in effect.key)} of {effect.name}"


def _step(effect: Effect, row: Row) -> int | None:
    """The global step, if the key has one and it is a number."""
    step = row[effect.step] if effect.has_step else None
    return step if type(step) is int else None
