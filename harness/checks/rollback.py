"""Does a restarted job go on exactly where its checkpoint says, and do again what it had done?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from harness.checks.base import Verdict, guarantee, invalid, not_applicable, unknown, valid
from harness.checks.records import Updates, each, exits, start_step, state_of, unplaced, updates
from harness.checks.replicas import SHARED, has_own_optimizers
from harness.events import Process, view
from harness.history import Baseline, History
from harness.wire import BASELINE_JSON, GENERATORS, RANDOM, Event, Kind

# Of one update: what went into it on this rank, then what came of it. Through the mean gradient the mistake of one rank
# shows in the parameters of all, so that only the former tells whose it was.
OWN_PART = ("lr", "scaler", "ids", *RANDOM)
REPLAYED = (*OWN_PART, "params", "optimizer", "buffers")


@guarantee(
    "RollbackExact",
    "a restarted job has exactly the state of its checkpoint, goes on with the next update, and leaves none out",
)
def rollback_exact(history: History, baseline: Baseline | None) -> Verdict:
    if verdict := _out_of_order(history) or _of_no_step(history, baseline):
        return verdict
    has_start = history.plan.start_from is not None
    if not has_start and not history.restarts:
        return not_applicable("there was no restart")
    done = updates(history)
    compared = 0
    for restart in range(0 if has_start else 1, history.restarts + 1):
        for rank in history.ranks:
            steps = done.get((rank, restart), {})
            left = exits(history, restart).get(rank)
            if not steps and (left is None or not left.data.get("params")):
                continue  # it did not get as far as a state to compare
            verdict = _state_unlike(history, baseline, done, rank, restart, left)
            verdict = verdict or _first_update(history, done, rank, restart)
            if verdict is not None:
                return verdict
            compared += 1
        if verdict := _unequal_starts(history, done, restart):
            return verdict
    if not compared:
        began = "no launch" if has_start else "no restart"
        return not_applicable(f"{began} did an update")
    return valid(f"{compared} processes went on where they should")


class Jump(NamedTuple):
    """The line of the first update of a process that does not follow the one before, and the step of that; or None."""

    seq: int | None
    before: int | None


@view
def _jump(process: Process) -> Jump:
    before: int | None = None
    for event in sorted(process.of(Kind.UPDATE), key=lambda event: event.seq):
        if before is not None and event.step != before + 1:
            return Jump(event.seq, before)
        before = event.step
    return Jump(None, None)


def _out_of_order(history: History) -> Verdict | None:
    """An update done twice or left out within one process."""
    jumps = history.each(_jump)
    for rank, restart in sorted(jumps, key=lambda place: (place[1], place[0])):
        seq, before = jumps[rank, restart]
        if seq is not None:
            event = history.line(rank, restart, seq)
            return invalid(f"update {event.step} follows update {before}", event)
    return None


def _of_no_step(history: History, baseline: Baseline | None) -> Verdict | None:
    """A state that the fault-free run never had, in a job that began with what a crash had left."""
    state = unplaced(history)
    if state is None:
        return None
    said = f"the state that rank {state.rank} began with is that of no step of the fault-free run"
    if reason := _incomparable(history, baseline):
        return unknown(f"{said}, but {reason}", state)
    seen = {what: state.data[what] for what in SHARED}
    return invalid(f"{said}: a mixture, a torn one, or another job's", state, seen=seen)


def _incomparable(history: History, baseline: Baseline | None) -> str | None:
    """Why the bytes of this run say nothing against the fault-free run's; None: they do."""
    if history.plan.tolerance is not None:
        return "the scenario says that its bytes may differ"
    if baseline is None or not baseline.updates:
        return f"there is no fault-free run to compare with{f': {baseline.reason}' if baseline else ''}"
    if baseline.repeatable is False:
        return f"the script is not repeatable: {baseline.reason or 'two fault-free runs gave different digests'}"
    return None


def _first_update(history: History, done: Updates, rank: int, restart: int) -> Verdict | None:
    steps = done.get((rank, restart), {})
    started = start_step(history, rank, restart)
    if not steps:
        return None
    first = next(iter(steps.values()))
    if started is None:
        return unknown(f"nothing tells where rank {rank} started restart {restart}", first)
    if first.step != started[0] + 1:
        return invalid(f"rank {rank} started from step {started[0]}, but its first update is {first.step}", first)
    reached = _reached(history, done, rank, restart)
    if reached is not None and first.step > reached + 1:
        return invalid(
            f"rank {rank} goes on with update {first.step}, but before the restart it had done {reached}", first
        )
    return None


def _reached(history: History, done: Updates, rank: int, restart: int) -> int | None:
    """The last update that the rank is known to have done before; None: nobody knows what an earlier run had done."""
    steps = [step for k in range(restart) for step in done.get((rank, k), ())]
    if history.plan.start_from is None:
        return max(steps, default=0)
    steps += [started[0] for k in range(restart) if (started := start_step(history, rank, k)) is not None]
    return max(steps, default=None)


def _state_unlike(
    history: History, baseline: Baseline | None, done: Updates, rank: int, restart: int, left: Event | None
) -> Verdict | None:
    """The state before the first update against the one on record for that step."""
    state = state_of(history, rank, restart)
    if state is None and done.get((rank, restart)):
        return unknown(
            f"the state of rank {rank} before its first update is not on record",
            next(iter(done[rank, restart].values())),
        )
    state = state or left  # no update was left to do: the state at the end is the one that was loaded
    started = start_step(history, rank, restart)
    if state is None or started is None:
        return None
    step, said = started
    before = [done[rank, k] for k in range(restart) if (rank, k) in done]
    earlier = [steps[step] for steps in before if step in steps]
    if step == 0:
        earlier = [e for k in range(restart) if (e := state_of(history, rank, k)) is not None and e.step == 0][:1]
    known = [(e.data, e.where) for e in earlier]
    is_of_earlier_run = history.plan.start_from is not None and not known
    if is_of_earlier_run:
        known = _of_baseline(baseline, rank, step)
    if not known:
        if before or is_of_earlier_run:
            return unknown(f"rank {rank} started from step {step}, which is not on record before", said)
        return None
    for what in SHARED:
        if what == "optimizer" and has_own_optimizers(baseline):
            continue  # one rank's is saved for all, as a rule; whether that does is told by the updates to come
        if all(state.data[what] != recorded[what] for recorded, _ in known):
            recorded, where = known[-1]
            if is_of_earlier_run and (reason := _incomparable(history, baseline)):
                return unknown(f"rank {rank} has another {what} state than the fault-free run, but {reason}", state)
            return invalid(
                f"rank {rank} started restart {restart} from step {step}, but its {what} state is not that step's",
                state,
                step=step,
                seen={"now": state.data[what], f"at step {step}": recorded[what], "recorded": where},
            )
    return None


def _of_baseline(baseline: Baseline | None, rank: int, step: int) -> list[tuple[Mapping[str, str], str]]:
    """The digests of the state after this step of the fault-free run, and where they are; none if it has none."""
    if baseline is None:
        return []
    state = baseline.updates.get(rank, {}).get(step) if step else baseline.starts.get(rank)
    return [] if state is None else [(state, BASELINE_JSON)]


def _unequal_starts(history: History, done: Updates, restart: int) -> Verdict | None:
    firsts = {rank: next(iter(mine.values())) for (rank, k), mine in done.items() if k == restart}
    if len({e.step for e in firsts.values()}) < 2:
        return None
    rank = min(firsts, key=lambda r: (firsts[r].step, r))
    steps = {f"rank {r}": e.step for r, e in sorted(firsts.items())}
    said = f"the ranks go on with different updates: {each(steps, 'update {}')}"
    return invalid(said, firsts[rank], seen={"first update": steps})


@guarantee("ReplayIdentical", "each replayed update gives what it gave the first time")
def replay_identical(history: History, baseline: Baseline | None) -> Verdict:
    if (state := unplaced(history)) is not None:
        return unknown(f"nothing tells at which step rank {state.rank} began", state)
    if not history.restarts:
        return not_applicable("no update was replayed")
    done = updates(history)
    # Where the scenario says that its bytes may differ, what does not come of sums.
    replayed_alike = REPLAYED if history.plan.tolerance is None else ("lr", "ids", *RANDOM)
    judged = tuple(what for what in replayed_alike if what not in (*RANDOM, "optimizer") or _repeats(what, baseline))
    first_time: dict[tuple[int, int], Event] = {}
    replayed: list[tuple[Event, Event]] = []
    for (rank, _restart), steps in sorted(done.items(), key=lambda item: item[0][1]):
        for step, event in steps.items():
            first = first_time.setdefault((rank, step), event)
            if first is not event:
                replayed.append((first, event))
    if not replayed:
        return not_applicable("no update was replayed")
    by_update: dict[tuple[int, int], list[tuple[Event, Event]]] = {}
    for first, again in replayed:
        by_update.setdefault((again.restart, again.step), []).append((first, again))
    for _, pairs in sorted(by_update.items()):
        if verdict := _replayed_otherwise(pairs, judged):
            return verdict
    return valid(f"{len(replayed)} replayed updates are equal to the first time")


def _replayed_otherwise(pairs: list[tuple[Event, Event]], judged: tuple[str, ...]) -> Verdict | None:
    """One replayed update of all ranks against its first time."""
    found = {}
    for first, again in pairs:
        if different := [what for what in judged if _both_differ(first, again, what)]:
            found[again.rank] = (first, again, different)
    guilty = [rank for rank, (_, _, different) in found.items() if different[0] in OWN_PART] or [*found]
    if not guilty:
        return None
    first, again, different = found[min(guilty)]
    what = different[0]
    open_to_chance = [
        module for part, module in GENERATORS.items() if part not in judged and _both_differ(first, again, part)
    ]
    is_open = open_to_chance and what not in OWN_PART
    perhaps = (
        f", perhaps by other random numbers of {' or '.join(open_to_chance)}: "
        "they are compared if that is seeded and each update draws from it"
    )
    return invalid(
        f"rank {again.rank}, update {again.step}: {', '.join(different)} differ from the first time"
        f"{perhaps if is_open else ''}",
        again,
        seen={
            "what": what,
            "first time": first.data[what],
            "replayed": again.data[what],
            "recorded": first.where,
            "ranks": sorted(guilty),
        },
    )


def _repeats(what: str, baseline: Baseline | None) -> bool:
    """Whether two undisturbed runs had the same there, as far as one knows.

    A generator that is never seeded cannot be replayed, nor a time that an optimizer notes.
    """
    if baseline is None:
        return what not in RANDOM
    return all(what in digests for steps in baseline.updates.values() for digests in steps.values())


def _both_differ(first: Event, again: Event, what: str) -> bool:
    a, b = first.data.get(what), again.data.get(what)
    return a is not None and b is not None and a != b
