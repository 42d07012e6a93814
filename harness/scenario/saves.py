"""When there is a checkpoint, and what may be said of a fault that acts on one, or on the way to one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from harness.checkpoint.layout import COMPLETE, MANIFEST, is_checkpoint_file
from harness.checkpoint.points import FAILPOINTS, Failpoint
from harness.faults import At, Fault
from harness.faults.base import WriteFault
from harness.faults.damage_file import DamageFile
from harness.faults.files import FilesFault
from harness.faults.work import WorkFault
from harness.scenario.model import Scenario
from harness.scenario.toml_lines import Path
from harness.scenario.wording import Problem, unknown_name
from harness.scenario.workloads import is_own_script

SAVE_FAILPOINTS = {
    **FAILPOINTS,
    "torch.save": Failpoint(
        writer="every", during="save", doc="torch.save to a path or an opened file, in any script", torn=True
    ),
}
WORLD: Path = ("ranks",)
LENGTH: tuple[Path, ...] = (("steps",), ("workload",))
SAVES: tuple[Path, ...] = (("save_every",), *LENGTH)
_AFTER_THE_SAVE = ("save", "eval", "teardown")  # phases of an update in which its own checkpoint may be there
_PART = re.compile(r"rank-(\d+)\.pt")


def numbered(scenario: Scenario) -> list[tuple[Path, Fault]]:
    """Each fault with its path."""
    return [(("fault", n), fault) for n, fault in enumerate(scenario.faults)]


def is_saved(scenario: Scenario, step: int) -> bool:
    """Whether there may be a checkpoint of this step, as far as the scenario tells."""
    steps, save_every = scenario.planned_steps, scenario.planned_save_every
    if step < 1 or (steps is not None and step > steps):
        return False
    return save_every is None or step % save_every == 0 or step == steps


def when_saved(scenario: Scenario) -> str:
    """The steps that ``is_saved``, in words."""
    steps, save_every = scenario.planned_steps, scenario.planned_save_every
    every = "any step" if save_every is None else f"each multiple of save_every = {save_every}"
    return f"allowed: {every}" if steps is None else f"allowed: {every} up to steps = {steps}, and {steps}"


def fault_meets_a_save(scenario: Scenario) -> Iterator[Problem]:
    """The failpoint is known, this rank passes it, and at this step there is a save."""
    for path, fault in numbered(scenario):
        at = fault.at
        phase = fault.acts_in if isinstance(fault, WorkFault) else at.phase
        if at.phase not in (None, phase) and "phase" in fault.places:
            wants = f"{fault.kind} acts in {phase} alone; write that, or leave it out"
            yield Problem((*path, "at", "phase"), wants, needs=((*path, "kind"),))
        during = "save" if phase == "save" else "load" if phase == "load" else None
        if at.failpoint is not None and "failpoint" in fault.places:
            name, _, _ = at.failpoint.partition(":")
            if at.failpoint not in (allowed := _failpoints(fault)):
                problem = _unknown_failpoint((*path, "at", "failpoint"), fault, at.failpoint, allowed)
                yield replace(problem, needs=((*path, "kind"),))
                continue
            during = SAVE_FAILPOINTS[name].during
            if SAVE_FAILPOINTS[name].writer == "rank0" and set(fault.targets(scenario.ranks)) != {0}:
                yield Problem((*path, "rank"), f"only rank 0 passes {name}; allowed: 0", needs=(WORLD,))
        if at.step is None or is_own_script(scenario.workload):
            continue
        if during == "load":
            yield Problem((*path, "at", "step"), "a load comes before the first update; say at which restart instead")
        elif during == "save" and not is_saved(scenario, at.step):
            yield Problem((*path, "at", "step"), f"nothing is saved there; {when_saved(scenario)}", needs=SAVES)


def damage_meets_a_checkpoint(scenario: Scenario) -> Iterator[Problem]:
    """What is to be damaged has such a name, and is there by then. Which parts a script saves, only the run knows."""
    for path, fault in numbered(scenario):
        if not isinstance(fault, FilesFault):
            continue
        kind: tuple[Path, ...] = ((*path, "kind"),)
        if isinstance(fault, DamageFile):
            is_ours = not is_own_script(scenario.workload) and "file" not in dict(fault.problems())
            if is_ours and (wants := _no_file_of_ours(fault.file, scenario.ranks)):
                yield Problem((*path, "file"), wants, needs=(*kind, WORLD, ("workload",)))
            if scenario.planned_save_every is not None and not _may_be_there(scenario, fault.checkpoint):
                wants = f"nothing is saved there; {when_saved(scenario)}"
                yield Problem((*path, "checkpoint"), wants, needs=(*kind, *SAVES))
                continue
        yield from _not_there_yet(scenario, path, fault)


def _no_file_of_ours(name: str, ranks: int) -> str | None:
    part = _PART.fullmatch(name)
    if part and int(part[1]) >= ranks:
        return f"there is no rank {part[1]}; ranks = {ranks} allows rank-0.pt to rank-{ranks - 1}.pt"
    if is_checkpoint_file(name):
        return None
    return f"no checkpoint has it; allowed: {COMPLETE}, {MANIFEST}, rank-R.pt, or a part that all share, as model.pt"


def _may_be_there(scenario: Scenario, step: int | None) -> bool:
    return step is None or step < 0 or scenario.start_from is not None or is_saved(scenario, step)


def _not_there_yet(scenario: Scenario, path: Path, fault: FilesFault) -> Iterator[Problem]:
    """In the first launch, which begins with nothing, and where it is known when there is a save."""
    at = fault.at
    if at.step is None or at.restart or scenario.start_from is not None or scenario.planned_save_every is None:
        return
    needs: tuple[Path, ...] = ((*path, "kind"), (*path, "at"), *SAVES)
    there = [step for step in range(1, _last_saved(at) + 1) if is_saved(scenario, step)]
    chosen = fault.checkpoint if isinstance(fault, DamageFile) else None
    older = [step for step in there if chosen is None or step < chosen]
    if not there:
        yield Problem((*path, "at", "step"), f"there is no checkpoint yet; {when_saved(scenario)}", needs=needs)
    elif chosen is not None and chosen >= 0 and chosen not in there:
        yield Problem((*path, "checkpoint"), f"is not saved yet at step {at.step}; {_listed(there)}", needs=needs)
    elif isinstance(fault, DamageFile) and fault.how == "stale" and len(older) < (2 if chosen is None else 1):
        wants = f"there is no checkpoint before it at step {at.step}; {_listed(there)}"
        yield Problem((*path, "how"), wants, needs=needs)


def _last_saved(at: At) -> int:
    """The newest update that a checkpoint may be of when the fault acts."""
    return (at.step or 0) - (at.failpoint is None and at.phase not in _AFTER_THE_SAVE)


def _listed(there: list[int]) -> str:
    return f"there are then: {', '.join(map(str, there))}"


def _failpoints(fault: Fault) -> list[str]:
    if isinstance(fault, WriteFault):
        return [name for name, point in SAVE_FAILPOINTS.items() if point.torn]
    return [f"{name}:{moment}" for name in SAVE_FAILPOINTS for moment in ("before", "after")]


def _unknown_failpoint(path: Path, fault: Fault, failpoint: str, allowed: list[str]) -> Problem:
    name, _, moment = failpoint.partition(":")
    if name in SAVE_FAILPOINTS and isinstance(fault, WriteFault):
        cure = f"give '{name}' alone" if name in allowed else "it is no write"
        return Problem(path, f"cannot be torn: {cure}; allowed: {', '.join(allowed)}")
    if name in SAVE_FAILPOINTS and moment == "torn":
        return Problem(path, f"{fault.kind} fires before or after a write; to stop in its middle use kind = 'torn'")
    if name in SAVE_FAILPOINTS:
        return Problem(path, f"needs its moment; allowed: {name}:before, {name}:after")
    return unknown_name(path, failpoint, allowed, "failpoint")
