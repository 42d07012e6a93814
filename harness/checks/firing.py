"""Did the planned faults happen, and did the job work before them? Without both, nothing else means anything."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from harness.checks.base import Verdict, guarantee, invalid, not_applicable, unknown, valid
from harness.checks.ends import ends_of
from harness.checks.records import listed, start_step
from harness.faults import Fault
from harness.history import Baseline, History
from harness.wire import PHASES, Event, Kind


@guarantee("FaultFired", "each planned fault fired, where and when planned, and took effect")
def fault_fired(history: History, _: Baseline | None) -> Verdict:
    """Never invalid: a fault that did not fire says nothing about the job, so the run is unknown."""
    plan = history.plan
    if plan.disarmed:
        return unknown("the faults were left out on purpose (--disarm): this run proves nothing")
    if not plan.faults:
        return not_applicable("no fault is planned")
    fired = {(e.data["index"], e.rank, e.restart): e for e in reversed(history.of(Kind.FAULT))}
    count = 0
    for index, fault in enumerate(plan.faults):
        mine = {rank: fired.get((index, rank, fault.at.restart)) for rank in fault.targets(plan.ranks)}
        problems = {}
        for rank, event in mine.items():
            if event is None:
                return _not_fired(history, fault, rank)
            after = [e for e in history.of(rank=rank, restart=event.restart) if e.seq > event.seq]
            problem = _elsewhere(fault, event) or fault.missing_effect(event, after)
            if problem and not _peers_tell(history, fault, event):
                problems[rank] = (event, problem)
        count += len(mine) - len(problems)
        without = {rank: event for rank, (event, _) in problems.items()}
        for rank in _ended_before_it_acted(history, fault, without, mine):
            del problems[rank]
        for rank, (event, problem) in problems.items():
            return unknown(f"{fault.kind} on rank {rank}: {problem}", event)
    return valid(f"{count} firing{'s' * (count != 1)} as planned")


def _peers_tell(history: History, fault: Fault, fired: Event) -> bool:
    """Whether the rank was ended before it could say what its save or load had come to, and others were told of it."""
    if not fault.is_told_by_peers or ends_of(history, fired.restart)[fired.rank].signal != "SIGTERM":
        return False
    told = [
        event
        for event in history.of((Kind.SAVE_ERROR, Kind.LOAD_ERROR), restart=fired.restart)
        if fired.rank in event.data.get("ranks", ()) and event.t_ns > fired.t_ns
    ]
    return bool(told) and not _elsewhere(fault, fired) and fault.missing_effect(fired, told) is None


def _ended_before_it_acted(
    history: History, fault: Fault, without: Mapping[int, Event], targets: Collection[int]
) -> list[int]:
    """Of the ranks on which it fired without effect those that the launcher ended meanwhile.

    What takes its time has its effect on one of several targets first, and the launcher ends the others. One that a
    rank may survive was under way there if it is the last on record.
    """
    if len(without) == len(targets):
        return []
    ends = {rank: end for rank, end in ends_of(history, fault.at.restart).items() if end.signal == "SIGTERM"}
    lasts = {rank: end.last.seq for rank, end in ends.items() if end.last is not None}
    return [rank for rank, event in without.items() if rank in ends and (fault.ends_rank or lasts[rank] == event.seq)]


def _not_fired(history: History, fault: Fault, rank: int) -> Verdict:
    restart, step = fault.at.restart, fault.at.step
    planned = f"{fault.kind} was planned on rank {rank}, restart {restart}, {describe_place(fault)}"
    last = next(iter(history.of(rank=rank, restart=restart)[-1:]), None)
    if last is None:
        there = f"there is no restart {restart} of this rank on record"
        return unknown(f"{planned}; {there}", rank=rank, step=step, restart=restart)
    there = f"the last that rank {rank} did there: {last.kind}, step {last.step}, {last.phase}"
    if last.kind == Kind.EXIT:
        there = f"rank {rank} had left by then, with exit code {last.data['code']}, in step {last.step}, {last.phase}"
    return unknown(f"{planned}; it did not fire; {there}{_phases_instead(history, fault, rank)}", last, step=step)


def _phases_instead(history: History, fault: Fault, rank: int) -> str:
    """Where a phase is planned that the rank never came to: those that it came to, and who did come; else ""."""
    restart, phase = fault.at.restart, fault.at.phase
    came = {other: {e.phase for e in history.of(rank=other, restart=restart)} for other in history.ranks}
    if phase is None or phase in came[rank]:
        return ""
    who = [other for other, phases in came.items() if phase in phases]
    others = f"{listed(who)} alone came to phase {phase}" if who else f"no rank came to phase {phase}"
    return f"; {others}; rank {rank} came to {', '.join(one for one in PHASES if one in came[rank])}"


def describe_place(fault: Fault) -> str:
    """Where a fault is planned, in words: ``step 12, phase backward``."""
    places = [f"{name} {getattr(fault.at, name)}" for name in fault.at.places]
    if fault.at.hit > 1:
        places.append(f"hit {fault.at.hit}")
    return ", ".join(places) or "at the first place that matches"


def _elsewhere(fault: Fault, event: Event) -> str | None:
    at = fault.at
    for name, planned, seen in (
        ("step", at.step, event.step),
        ("phase", at.phase, event.phase),
        ("epoch", at.epoch, event.data.get("epoch", at.epoch)),
        ("kind", fault.kind, event.data["fault"]),
    ):
        if planned is not None and planned != seen:
            return f"planned at {describe_place(fault)}, fired at {name} {seen}"
    return None


@guarantee("SteadyBefore", "the job did real work on every rank before the first fault")
def steady_before(history: History, _: Baseline | None) -> Verdict:
    if not history.plan.faults and not history.plan.disarmed:
        return not_applicable("no fault is planned")
    first = next(iter(history.of(Kind.FAULT)), None)
    if first is None:
        return unknown("no fault fired: there is no before")
    started = start_step(history, first.rank, first.restart)
    start = started[0] if started is not None and started[1].t_ns < first.t_ns else 0
    # The tag of a fault names the update that is being made; after it, while saving, the update just done.
    done_by_then = first.step if first.phase in ("save", "eval", "teardown") else first.step - 1
    if first.restart == 0 and done_by_then <= start:
        return valid(f"the first fault is planned before any update can be done: {first.phase}, step {first.step}")
    short = {}
    for rank in history.ranks:
        mine = rank == first.rank
        steps = {
            e.step for e in history.of(Kind.UPDATE, rank=rank, restart=first.restart) if not mine or e.t_ns < first.t_ns
        }
        # The other ranks may still be at their last update when this one enters the next step.
        needed = set(range(start + 1, done_by_then + 1 if mine else max(done_by_then, start + 2)))
        if (
            first.restart > 0
            and not steps
            and any(e.restart < first.restart for e in history.of(Kind.UPDATE, rank=rank))
        ):
            continue  # a fault in recovery: the work was done in the launch before
        if missing := sorted(needed - steps):
            short[rank] = missing
    if not short:
        return valid(f"updates {start + 1} to {done_by_then} were done before the fault in step {first.step}")
    rank = min(short, key=lambda r: (r != first.rank, r))
    return invalid(
        f"the first fault fired in step {first.step} ({first.phase}), "
        f"but {listed(short)} had not done update {short[rank][0]}",
        first,
        rank=rank,
        step=short[rank][0],
        seen={"missing updates": {f"rank {r}": steps[:10] for r, steps in short.items()}},
    )
