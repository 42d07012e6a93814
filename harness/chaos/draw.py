"""From (seed, number) to a scenario: a job and one or more faults that are sure to be met.

A launch gets at most one fault that ends it, at a place that the job is sure to reach then; whatever may or may not end
a launch comes last. So each planned fault fires in sound training, and one that does not is a finding.

In half of all plans no fault leaves anything wrong behind: there every guarantee has to hold. Beside one that does,
only what comes before it is judged, and a bug of the job's own may hide.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal

from harness.chaos.job import Ground, GroundOf, JobSource, changed
from harness.checkpoint.points import FAILPOINTS
from harness.faults import KINDS, At, Fault
from harness.faults.base import CollectiveFault, LastingFault, LoaderFault, PointFault, Target, WriteFault
from harness.faults.batch import BatchFault
from harness.faults.files import FilesFault
from harness.faults.overflow import Overflow
from harness.faults.repeat_batch import RepeatBatch
from harness.faults.work import WorkFault
from harness.scenario import Scenario
from harness.scenario.rules import problems
from harness.wire import Phase

ANY_JOB = JobSource()
MAX_TRIES = 200  # for one fault: most kinds can act at most places
SMALL = {"int": (1, 2, 3), "float": (0.5, 2.0)}


@dataclass(frozen=True)
class Launch:
    """One launch of the job, as far as it is known beforehand.

    Attributes:
        restart: its restart count.
        first: an update that it is sure to make, and all after it; above ``steps``: none may be left.
        has_checkpoint: there is one to load for sure.
    """

    restart: int
    first: int
    has_checkpoint: bool


def draw(seed: int, number: int, ground_of: GroundOf, source: JobSource = ANY_JOB) -> Scenario:
    """The ``number``-th plan of a seed.

    Args:
        ground_of: what a job passes without faults.
        source: where the job comes from.
    """
    rng = rng_of(seed, number)
    job = source.draw(rng)
    ground = ground_of(job)
    max_restarts, num_ended = _budget(rng)
    faults = list(_at_sure_places(_faults(rng, ground, max_restarts, num_ended)))
    return changed(
        job,
        title=f"chaos, seed {seed}, plan {number}: {', '.join(fault.kind for fault in faults)}",
        max_restarts=max_restarts,
        fault=tuple(faults),
    )


def _at_sure_places(faults: Iterable[Fault]) -> Iterator[Fault]:
    """Without a repeated batch behind a fault that leaves something wrong: once a batch is lost, or left out by a
    gradient scaler, epochs begin at other updates, and the first batch of one has none before it.
    """
    is_wrong = False
    for fault in faults:
        if not (is_wrong and isinstance(fault, RepeatBatch)):
            yield fault
        is_wrong |= bool(fault.findings)


def rng_of(seed: int, number: int) -> Random:
    """What makes all choices of one plan, the job first."""
    return Random(f"chaos {seed} {number}")  # a string: seeded by its bytes, not by hash()


def _budget(rng: Random) -> tuple[int, int]:
    """max_restarts, and how many launches are ended by a fault."""
    num_ended = rng.choices((0, 1, 2), (6, 10, 4))[0]
    spare = rng.choices((-1, 0, 1), (2, 10, 2))[0]
    return max(0, num_ended + spare), num_ended


def _faults(rng: Random, ground: Ground, max_restarts: int, num_ended: int) -> Iterator[Fault]:
    launch = Launch(restart=0, first=1, has_checkpoint=False)
    may_last = rng.random() < 0.5
    for restart in range(num_ended):
        end = _draw_one(rng, ground, launch, ["always"])
        assert end is not None, f"nothing ends {launch} of {ground.job.workload}, in {MAX_TRIES} tries"
        before = _last_update_before(end, ground)
        if launch.first < before and rng.random() < 0.25:
            early = _draw_one(rng, ground, replace(launch), ["never"], until=before, may_last=may_last)
            is_retiring = end.at.failpoint is not None and ".retention." in end.at.failpoint
            # Of what is damaged none is counted among those that are kept, so that none may have to go.
            yield from _one(None if early is not None and early.level == "storage" and is_retiring else early)
        yield end
        launch = _after(end, launch, ground, restart + 1)
    is_last = num_ended <= max_restarts
    if is_last and (num_ended == 0 or rng.random() < 0.5) and launch.first <= ground.steps:
        yield from _one(_draw_one(rng, ground, launch, ["never", "maybe"], may_last=may_last))


def _one(fault: Fault | None) -> tuple[Fault, ...]:
    return () if fault is None else (fault,)


def _last_update_before(end: Fault, ground: Ground) -> int:
    """The last update that is sure to be made and recorded before this fault."""
    if end.at.step is None:
        return ground.steps if end.at.phase == "teardown" else 0
    return end.at.step - 1


def _after(end: Fault, launch: Launch, ground: Ground, restart: int) -> Launch:
    """What is known of the launch that follows one that was ended."""
    at = end.at
    if at.step is None:
        is_end = at.phase == "teardown"
        has_checkpoint = launch.has_checkpoint or (is_end and bool(ground.saved))
        return Launch(restart, ground.steps + 1 if is_end else launch.first, has_checkpoint)
    after_it = at.phase in ("save", "eval") or at.failpoint is not None or at.collective is not None
    maybe = [step for step in ground.maybe_saved if step < at.step + after_it]
    sure = [step for step in ground.saved if step < at.step]
    return Launch(restart, max(maybe, default=launch.first - 1) + 1, bool(sure) or launch.has_checkpoint)


# -- one fault -----------------------------------------------------------------------------------------------------


def _draw_one(
    rng: Random,
    ground: Ground,
    launch: Launch,
    ends: Sequence[str],
    until: int | None = None,
    may_last: bool = True,
) -> Fault | None:
    """A fault of any kind that ends its launch so; None if there is none on this ground, or none was hit upon.

    Args:
        until: the last update at which it may act.
        may_last: it may leave something wrong behind.
    """
    until = ground.steps if until is None else until
    names = list(KINDS)
    if launch.restart:  # the only launches in which these can act
        names += [name for name in names if getattr(KINDS[name], "acts_in", None) == "load"] * 3
    for _ in range(MAX_TRIES):
        kind = KINDS[rng.choice(names)]
        if kind.needs - ground.has:
            continue
        settings = {field.name: _setting(rng, kind, field) for field in dataclasses.fields(kind) if _is_drawn(field)}
        at = _place(rng, kind, ground, launch, until)
        if at is None:
            continue
        fault = kind(kind=_name(kind), at=at, rank=_target(rng, kind, at, ground, launch), **settings)
        if fault.ends_launch in ends and (may_last or not fault.findings) and _is_possible(fault, ground, launch):
            return fault
    return None


def _name(kind: type[Fault]) -> str:
    return str(vars(kind)["kind"])


def _is_drawn(field: dataclasses.Field[Any]) -> bool:
    return field.name not in ("kind", "rank", "at")


def _setting(rng: Random, kind: type[Fault], field: dataclasses.Field[Any]) -> Any:
    if field.name in kind.drawn:
        return rng.choice(kind.drawn[field.name])
    hint = typing.get_type_hints(kind)[field.name]
    if typing.get_origin(hint) is Literal:
        return rng.choice(typing.get_args(hint))
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return rng.choice(SMALL[hint.__name__])


def _target(rng: Random, kind: type[Fault], at: At, ground: Ground, launch: Launch) -> Target:
    """One rank; of faults that end a process also several. What all do alike is no deviation of any."""
    if at.failpoint is not None and FAILPOINTS[at.failpoint.partition(":")[0]].writer == "rank0":
        return 0
    one = rng.randrange(ground.job.ranks)
    if issubclass(kind, PointFault) and rng.random() < 0.2:
        several: list[Target] = ["nonzero", "last"] if kind.needs_peers else ["all", "nonzero", "last"]
        return rng.choice(several)
    return one


def _is_possible(fault: Fault, ground: Ground, launch: Launch) -> bool:
    if fault.at.collective is not None and any(
        fault.at.collective > ground.num_collectives(rank, fault.at.step or 0)
        for rank in fault.targets(ground.job.ranks)
    ):
        return False
    if isinstance(fault, CollectiveFault) and fault.at.collective is not None and fault.at.step is not None:
        if fault.at.restart and type(fault).acts_on is not CollectiveFault.acts_on:
            return False  # DDP lays out its buckets anew then: which call is the k-th is not on record
        number = fault.at.collective
        for rank in fault.targets(ground.job.ranks):
            calls = ground.calls(rank, fault.at.step)
            if not all(fault.acts_on(calls, one) for one in ground.may_come(rank, fault.at.step, number)):
                return False
    if isinstance(fault, Overflow) and fault.gradient != "local" and ground.accumulates:
        return False
    if fault.at.step is not None and ground.may_overflow(fault.at.step) and _acts_in_attempt(fault):
        return False
    return not problems(changed(ground.job, max_restarts=launch.restart, fault=(fault,)))


def _acts_in_attempt(fault: Fault) -> bool:
    """Whether it is gone with an attempt that a gradient scaler leaves out: the update is made of something else."""
    if isinstance(fault, BatchFault):
        return bool(fault.findings)
    return isinstance(fault, WorkFault) and fault.acts_in in ("backward", "unscale")


# -- its place -----------------------------------------------------------------------------------------------------


def _place(rng: Random, kind: type[Fault], ground: Ground, launch: Launch, until: int) -> At | None:
    """A place that this launch is sure to reach; None if there is none for this kind, or none was hit upon."""
    restart = launch.restart
    steps = list(range(launch.first, until + 1))
    saves = [step for step in ground.saved if step in steps]
    forms: list[At] = []
    if issubclass(kind, WorkFault) and kind.acts_in == "load":
        return At(phase="load", restart=restart) if launch.has_checkpoint and until == ground.steps else None
    if issubclass(kind, LoaderFault):
        return _epoch(rng, ground, launch)
    if issubclass(kind, WriteFault):
        return _failpoint(rng, saves, ground, restart, is_torn=True)
    if issubclass(kind, WorkFault) and kind.acts_in == "save":
        return At(step=rng.choice(saves), restart=restart) if saves else None
    if issubclass(kind, FilesFault):
        return _after_two_saves(rng, steps, ground, restart)
    if issubclass(kind, LastingFault) or kind.needs_peers:  # the next update is slow as well, or waited for
        return _phase(rng, steps[:-1], ground, restart, lasts=2)
    if issubclass(kind, RepeatBatch):
        steps = [step for step in steps[1:] if step not in ground.epoch_starts] if ground.epoch_starts else []
    if issubclass(kind, BatchFault | WorkFault):
        return At(step=rng.choice(steps), restart=restart) if steps else None
    if steps and "collective" in kind.places:
        step = rng.choice(steps)
        # A restart lays its first update out anew, and what it sends there need not be on record.
        most = min(1, ground.num_collectives(0, step)) if restart else ground.num_collectives(0, step)
        forms += [At(step=step, collective=rng.randint(1, most), restart=restart)] if most else []
    if "phase" in kind.places and "failpoint" in kind.places:
        place = _phase(rng, steps, ground, restart)
        forms += [place] * 2 if place is not None else []
    if saves and "failpoint" in kind.places:
        forms += [At(step=rng.choice(saves), phase="save", restart=restart)]
        point = _failpoint(rng, saves, ground, restart, is_torn=False)
        forms += [point] * 2 if point is not None else []
    if "phase" in kind.places and "failpoint" in kind.places and until == ground.steps:
        once: list[Phase] = ["init", "load", "teardown"]
        forms += [At(phase=rng.choice([phase for phase in once if ground.has_phase(phase)]), restart=restart)]
        loads = [name for name, point in FAILPOINTS.items() if point.during == "load"]
        if launch.has_checkpoint:
            name = f"{rng.choice(loads)}:{rng.choice(('before', 'after'))}"
            forms += [At(failpoint=name, restart=restart)]
    return rng.choice(forms) if forms else None


def _phase(rng: Random, steps: Sequence[int], ground: Ground, restart: int, lasts: int = 1) -> At | None:
    """A phase of one of these updates, and of as many after it as it ``lasts``."""
    if not steps:
        return None
    step = rng.choice(steps)
    phases = [
        phase
        for phase in ground.phases_at(step)
        if all(phase in ground.phases_at(step + later) for later in range(1, lasts))
    ]
    return At(step=step, phase=rng.choice(phases), restart=restart) if phases else None


def _after_two_saves(rng: Random, steps: Sequence[int], ground: Ground, restart: int) -> At | None:
    """Where the older one is left to load, if the newer one is damaged; a restart may have loaded either.

    Not right after a save: the first rank may still be tidying up, while the others go on.
    """
    saved = ground.saved
    within = [step for step in steps if step - 1 not in saved and sum(before < step for before in saved) >= 2]
    return At(step=rng.choice(within), phase="forward", restart=restart) if within and not restart else None


def _epoch(rng: Random, ground: Ground, launch: Launch) -> At | None:
    """A pass over the data that comes to its end within the job."""
    num_whole = len(ground.epoch_starts) - 1
    if launch.restart or num_whole < 1:
        return None  # where a resumed pass begins, and so its length, is the script's own choice
    return At(epoch=rng.randrange(num_whole))


def _failpoint(rng: Random, saves: Sequence[int], ground: Ground, restart: int, *, is_torn: bool) -> At | None:
    if not saves:
        return None
    step = rng.choice(saves)
    kept = ground.kept_checkpoints
    # A store that has loaded counts anew: what lay there before is not known to be whole, and stays.
    is_retiring = kept is not None and restart == 0 and ground.saved.index(step) >= kept
    names = [
        name
        for name, point in FAILPOINTS.items()
        if point.during == "save" and (point.torn or not is_torn) and (is_retiring or ".retention." not in name)
    ]
    name = rng.choice(names)
    return At(step=step, failpoint=name if is_torn else f"{name}:{rng.choice(('before', 'after'))}", restart=restart)
