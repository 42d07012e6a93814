"""What the fields of a scenario must fulfil together.

Each rule yields Problems. A Problem whose field, or a field that it ``needs``, is wrong by itself is dropped by the
loader: nothing is reported that may vanish when something else is mended.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

from harness.faults.base import LastingFault
from harness.scenario.model import Scenario
from harness.scenario.saver import SaverScenario
from harness.scenario.saves import (
    LENGTH,
    SAVES,
    WORLD,
    damage_meets_a_checkpoint,
    fault_meets_a_save,
    is_saved,
    numbered,
    when_saved,
)
from harness.scenario.toml_lines import Path
from harness.scenario.wording import Problem, either
from harness.scenario.workloads import is_own_script, nearest_workload, no_workload, workload_names
from harness.wire import RUN_DIR_ENV

Rule = Callable[[Scenario], Iterator[Problem]]

REPLACED = ("run_dir", "checkpoints", "steps", "save_every", "seed")  # in braces, in the script's arguments
_SET_BY_LAUNCHER = {RUN_DIR_ENV, "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
_OUTCOME: tuple[Path, ...] = (("expect", "outcome"),)


def problems(scenario: Scenario) -> list[Problem]:
    """Everything that is wrong between fields that are right by themselves."""
    return [problem for rule in RULES for problem in rule(scenario)]


def saver_problems(scenario: SaverScenario) -> list[Problem]:
    """The same for a scenario of a save function."""
    return list(_saver_problems(scenario))


def _saver_problems(scenario: SaverScenario) -> Iterator[Problem]:
    expect = scenario.expect
    if not scenario.saver_file.is_file():
        at = f"there is no file {scenario.saver_file}; paths start at the scenario file's folder"
        yield Problem(("saver",), at)
    if expect.outcome == "broken" and not expect.verdicts:
        wants = "missing: name the ways to fail that must be seen, such as lost-ack"
        yield Problem(("expect", "verdicts"), wants, needs=_OUTCOME)
    for name in ("verdicts", "model"):
        if expect.outcome == "valid" and getattr(expect, name):
            yield Problem(("expect", name), "only for outcome = 'broken'; leave it out", needs=_OUTCOME)
    if expect.model is not None and expect.model not in scenario.models:
        wants = f"is not among models, which are {', '.join(scenario.models)}"
        yield Problem(("expect", "model"), wants, needs=(("models",),))


def workload_exists(scenario: Scenario) -> Iterator[Problem]:
    if not is_own_script(scenario.workload):
        if scenario.workload not in workload_names():
            text = f"{no_workload(scenario.workload)}, or a path that ends in .py"
            yield Problem(("workload",), text, nearest=nearest_workload(scenario.workload))
    elif not scenario.script.is_file():
        yield Problem(("workload",), f"there is no file {scenario.script}; paths start at the scenario file's folder")


def start_is_there(scenario: Scenario) -> Iterator[Problem]:
    """What the job begins with; what is in an archive is looked at when it runs."""
    path = scenario.start_path
    if path is None:
        if scenario.acknowledged is not None:
            yield Problem(("acknowledged",), "is said of what start_from names; give it, or leave this out")
        return
    if not path.is_dir() and not path.is_file():
        what = "is neither a directory nor an archive" if path.exists() else "is not there"
        yield Problem(("start_from",), f"{path} {what}; paths start at the scenario file's folder")
    elif not os.access(path, os.R_OK | os.X_OK if path.is_dir() else os.R_OK):
        yield Problem(("start_from",), f"{path} may not be read; make it readable")
    is_told = not is_own_script(scenario.workload) or any("{checkpoints}" in arg for arg in scenario.args)
    if scenario.script.is_file() and not is_told:
        wants = "is copied into {checkpoints}, which none of args names: the script would not find it; add it to args"
        yield Problem(("start_from",), wants, needs=(("args",), ("workload",)))
    if scenario.expect.outcome == "recovers" and scenario.expect.resume_step is None:
        wants = "missing: with start_from, the step that the job must go on from, so that one which reads nothing fails"
        yield Problem(("expect", "resume_step"), wants, needs=(("expect",),))


def tables_are_judged(scenario: Scenario) -> Iterator[Problem]:
    """A table and the guarantee that it is for want each other."""
    tables = {"GradientRight": "gradient", "EffectsOnce": "effect"}
    for guarantee, table in tables.items():
        has_table = bool(scenario.gradient if table == "gradient" else scenario.effects)
        is_asked_for = guarantee in scenario.guarantees or any(b.guarantee == guarantee for b in scenario.expect.broken)
        if is_asked_for and not has_table:
            yield Problem((table,), f"missing: {guarantee} is asked for, and this says what to judge")
        if has_table and scenario.guarantees and guarantee not in scenario.guarantees:
            yield Problem(
                ("guarantees",), f"leaves out {guarantee}, which the table {table} is for: name it, or neither"
            )


def losses_are_there(scenario: Scenario) -> Iterator[Problem]:
    path = scenario.losses_path
    if path is not None and not path.is_file():
        yield Problem(("gradient", "losses"), f"there is no file {path}; paths start at the scenario file's folder")


def bounds_are_nested(scenario: Scenario) -> Iterator[Problem]:
    if scenario.collective_timeout_s >= scenario.deadline_s:
        yield Problem(
            ("collective_timeout_s",),
            f"must be below deadline_s, which is {scenario.deadline_s:g}: else a hang ends before its cause is seen",
            needs=(("deadline_s",),),
        )


def names_stand_once(scenario: Scenario) -> Iterator[Problem]:
    lists: dict[str, Sequence[str]] = {
        "devices": scenario.devices,
        "guarantees": scenario.guarantees,
        "preload": scenario.preload,
    }
    for field, names in lists.items():
        for name, count in Counter(names).items():
            if count > 1:
                yield Problem((field,), f"names '{name}' {count} times; once is allowed")


def environment_is_free(scenario: Scenario) -> Iterator[Problem]:
    for name in scenario.env:
        if name in _SET_BY_LAUNCHER:
            yield Problem(("env", name), "is set by the launcher for each rank; choose another name")
        elif not name or "=" in name or "\0" in name or "\0" in scenario.env[name]:
            yield Problem(("env", name), "is no environment variable: no '=' in its name, no zero byte in either")


def arguments_are_free(scenario: Scenario) -> Iterator[Problem]:
    for n, arg in enumerate(scenario.args):
        if "\0" in arg:
            yield Problem(("args", n), "is no argument of a command: no zero byte in it")
        for name in re.findall(r"\{(\w+)\}", arg):
            # Other braces are the script's own; a near miss would name a directory that all runs share.
            if name not in REPLACED and (near := difflib.get_close_matches(name, REPLACED, n=1, cutoff=0.8)):
                names = ", ".join(f"{{{name}}}" for name in REPLACED)
                wants = f"{{{name}}} is not replaced; did you mean '{{{near[0]}}}'? these are: {names}"
                yield Problem(("args", n), wants, nearest=f"{{{near[0]}}}")


def effects_have_a_place(scenario: Scenario) -> Iterator[Problem]:
    for n, effect in enumerate(scenario.effects):
        path: Path = ("effect", n)
        field = "database" if effect.database is not None else "lines"
        if (effect.database is None) == (effect.lines is None):
            yield Problem(path, "is a table of an SQLite database or a file of JSON lines: give database, or lines")
        elif (effect.database is None) != (effect.table is None):
            yield Problem((*path, "table"), "a database needs the name of its table, and lines have none")
        elif not effect.path.startswith(("{checkpoints}", "{run_dir}")):
            wants = "must begin with {checkpoints} or {run_dir}: else a run finds there what another one has written"
            yield Problem((*path, field), wants)
        if not effect.key:
            yield Problem((*path, "key"), "must name at least one column")
        elif effect.step != "step" and not effect.has_step:
            yield Problem((*path, "step"), f"is no column of key; allowed: {', '.join(effect.key)}")
        for column, count in Counter([*effect.key, *effect.ignore]).items():
            if count > 1:
                wants = f"names {column} twice; a column is in key, to be compared, or in ignore, not to be"
                yield Problem((*path, "ignore" if column in effect.ignore else "key"), wants)


def metric_can_be_read(scenario: Scenario) -> Iterator[Problem]:
    if scenario.metric is None:
        return
    try:
        groups = re.compile(scenario.metric.reported).groups
    except re.error as error:
        yield Problem(("metric", "reported"), f"is no regular expression: {error}")
    else:
        if groups != 1:
            wants = f"must have one group, around the number, and has {groups}; another one can be written (?:...)"
            yield Problem(("metric", "reported"), wants)
    path = scenario.reference_path
    if path is not None and not path.is_file():
        wants = f"there is no file {path}; paths start at the scenario file's folder"
        yield Problem(("metric", "reference"), wants)


def fault_is_possible(scenario: Scenario) -> Iterator[Problem]:
    """Settings and place of each fault by itself."""
    for path, fault in numbered(scenario):
        kind: tuple[Path, ...] = ((*path, "kind"),)
        yield from (Problem((*path, field), text, needs=kind) for field, text in fault.problems())
        yield from (Problem((*path, "at", field), text) for field, text in fault.at.problems())
        allowed = either(sorted(fault.places))
        if not fault.at.places:
            yield Problem((*path, "at"), f"must name a place; {fault.kind} understands {allowed}", needs=kind)
        for place in fault.at.places:
            if place not in fault.places:
                wants = f"{fault.kind} does not understand it; allowed: {allowed}"
                yield Problem((*path, "at", place), wants, needs=kind)


def fault_is_in_the_world(scenario: Scenario) -> Iterator[Problem]:
    for path, fault in numbered(scenario):
        targets = fault.targets(scenario.ranks)
        outside = [rank for rank in targets if not 0 <= rank < scenario.ranks]
        if outside:
            allowed = f"ranks = {scenario.ranks} allows 0..{scenario.ranks - 1}"
            yield Problem((*path, "rank"), f"there is no rank {either(outside)}; {allowed}", needs=(WORLD,))
        elif not targets:
            yield Problem((*path, "rank"), f"names no rank of ranks = {scenario.ranks}", needs=(WORLD,))
        elif len(set(targets)) < len(targets):
            yield Problem((*path, "rank"), "names a rank twice")


def fault_is_in_the_run(scenario: Scenario) -> Iterator[Problem]:
    for path, fault in numbered(scenario):
        steps, at = scenario.planned_steps, fault.at
        if at.step is not None and steps is not None and at.step > steps:
            yield Problem((*path, "at", "step"), f"is beyond the last update: steps = {steps}", needs=LENGTH)
        if isinstance(fault, LastingFault) and at.step is not None and steps is not None:
            last = at.step + fault.lasts() - 1
            if at.step <= steps < last:
                allowed = f"steps = {steps} allows 1..{steps - at.step + 1}"
                yield Problem((*path, "updates"), f"update {last} never comes; {allowed}", needs=LENGTH)
        if at.restart > scenario.max_restarts:
            allowed = f"max_restarts = {scenario.max_restarts} allows 0..{scenario.max_restarts}"
            yield Problem((*path, "at", "restart"), f"never comes; {allowed}", needs=(("max_restarts",),))


def fault_ends_in_time(scenario: Scenario) -> Iterator[Problem]:
    for path, fault in numbered(scenario):
        duration_s = getattr(fault, "duration_s", 0.0)
        if scenario.deadline_s <= duration_s < math.inf:
            yield Problem(
                (*path, "duration_s"),
                f"must be below deadline_s, which is {scenario.deadline_s:g}: else nothing is left to see of it",
                needs=(("deadline_s",),),
            )


def fault_can_fire(scenario: Scenario) -> Iterator[Problem]:
    """No other fault has ended its process before, whichever comes first."""
    for (first_path, first), (path, second) in combinations(numbered(scenario), 2):
        if first == second:
            yield Problem(path, f"says the same as fault[{first_path[1]}]; leave one out")
        elif first.ends_rank and second.ends_rank and first.at.restart == second.at.restart:
            both = set(first.targets(scenario.ranks)) & set(second.targets(scenario.ranks))
            if both:
                yield Problem(
                    (*path, "at", "restart"),
                    f"rank {either(sorted(both))} ends by fault[{first_path[1]}] or by this one, never by both; "
                    "set another restart for one of them",
                    needs=(*_ends(first_path), *_ends(path), (*first_path, "rank"), (*path, "rank"), WORLD),
                )


def outcome_fits_faults(scenario: Scenario) -> Iterator[Problem]:
    outcome: Path = ("expect", "outcome")
    match scenario.expect.outcome:
        case "clean" if scenario.faults:
            yield Problem(outcome, "clean is a run without faults; leave the faults out, or expect another outcome")
        case "recovers" if not scenario.faults and scenario.start_from is None:
            wants = "recovers needs something to recover from; add a [[fault]] or start_from, or expect clean"
            yield Problem(outcome, wants, needs=(("fault",),))
        case "recovers":
            ends = [(path, fault) for path, fault in numbered(scenario) if fault.ends_rank]
            path, last = max(ends, key=lambda end: end[1].at.restart, default=((), None))
            if last is not None and last.at.restart >= scenario.max_restarts:
                yield Problem(
                    ("max_restarts",),
                    f"fault[{path[1]}] ends a rank at restart {last.at.restart} and the job must recover: "
                    f"at least {last.at.restart + 1} is needed",
                    needs=(*_ends(path), outcome),
                )
        case "detected" if not scenario.expect.broken:
            yield Problem(("expect", "broken"), "detected needs at least one { guarantee, rank, step, operation }")


def expectation_is_possible(scenario: Scenario) -> Iterator[Problem]:
    expect, steps = scenario.expect, scenario.planned_steps
    budget: Path = ("max_restarts",)
    if expect.restarts is not None and not 0 <= expect.restarts <= scenario.max_restarts:
        allowed = f"max_restarts = {scenario.max_restarts} allows 0..{scenario.max_restarts}"
        yield Problem(("expect", "restarts"), f"cannot be; {allowed}", needs=(budget,))
    if expect.resume_step is not None:
        path: Path = ("expect", "resume_step")
        if expect.resume_step != 0 and not is_saved(scenario, expect.resume_step):
            wants = f"nothing is saved there; {when_saved(scenario)}, or 0 for no checkpoint yet"
            yield Problem(path, wants, needs=SAVES)
        if scenario.max_restarts == 0 and scenario.start_from is None:
            yield Problem(path, "nothing resumes with max_restarts = 0; allow one or leave it out", needs=(budget,))
    if expect.broken and expect.outcome not in ("detected", "stops"):
        wants = f"nothing may be broken when the outcome is {expect.outcome}"
        yield Problem(("expect", "broken"), wants, needs=_OUTCOME)
    if expect.message is not None and expect.outcome != "refuses":
        wants = f"belongs to the outcome refuses, not to {expect.outcome}"
        yield Problem(("expect", "message"), wants, needs=_OUTCOME)
    for n, broken in enumerate(expect.broken):
        path = ("expect", "broken", n)
        if broken.rank is not None and not 0 <= broken.rank < scenario.ranks:
            yield Problem((*path, "rank"), f"ranks = {scenario.ranks} allows 0..{scenario.ranks - 1}", needs=(WORLD,))
        if broken.step is not None and not 0 <= broken.step <= (steps or broken.step):
            yield Problem((*path, "step"), f"steps = {steps} allows 0..{steps}", needs=LENGTH)


RULES: tuple[Rule, ...] = (
    workload_exists,
    start_is_there,
    losses_are_there,
    tables_are_judged,
    bounds_are_nested,
    names_stand_once,
    environment_is_free,
    arguments_are_free,
    effects_have_a_place,
    metric_can_be_read,
    fault_is_possible,
    fault_is_in_the_world,
    fault_is_in_the_run,
    fault_ends_in_time,
    fault_meets_a_save,
    damage_meets_a_checkpoint,
    fault_can_fire,
    outcome_fits_faults,
    expectation_is_possible,
)


def _ends(path: Path) -> tuple[Path, ...]:
    """The fields of a fault that say whether, and in which launch, it ends its rank."""
    return ((*path, "kind"), (*path, "signal"), (*path, "at", "failpoint"), (*path, "at", "restart"))
