"""Does a restarted job go on exactly where its checkpoint says, and end where an undisturbed one ends?"""

from __future__ import annotations

from collections.abc import Mapping

from harness.checks.base import Verdict, guarantee, invalid, not_applicable, unknown, valid
from harness.checks.records import Updates, ended_well, exits, start_step, state_of, updates
from harness.checks.replicas import SHARED
from harness.history import Baseline, History
from harness.wire import Event, Kind

REPLAYED = ("params", "optimizer", "lr", "scaler", "rng", "ids", "buffers")  # of one update, the telling ones first


@guarantee(
    "RollbackExact",
    "a restarted job has exactly the state of its checkpoint, goes on with the next update, and leaves none out",
)
def rollback_exact(history: History, _: Baseline | None) -> Verdict:
    done = updates(history)
    if verdict := _out_of_order(history):
        return verdict
    compared = 0
    for restart in range(1, history.restarts + 1):
        for rank in history.ranks:
            steps = done.get((rank, restart), {})
            left = exits(history, restart).get(rank)
            if not steps and (left is None or not left.data.get("params")):
                continue  # it did not get as far as a state to compare
            verdict = _state_unlike(history, done, rank, restart, left) or _first_update(history, done, rank, restart)
            if verdict is not None:
                return verdict
            compared += 1
        if verdict := _unequal_starts(history, done, restart):
            return verdict
    if not compared:
        return not_applicable("no restart did an update" if history.restarts else "there was no restart")
    return valid(f"{compared} processes went on where they should")


def _out_of_order(history: History) -> Verdict | None:
    """An update done twice or left out within one process."""
    previous: dict[tuple[int, int], Event] = {}
    for event in history.of(Kind.UPDATE):
        before = previous.get((event.rank, event.restart))
        if before is not None and event.step != before.step + 1:
            return invalid(f"update {event.step} follows update {before.step}", event)
        previous[event.rank, event.restart] = event
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
    reached = max((step for k in range(restart) for step in done.get((rank, k), ())), default=0)
    if first.step > reached + 1:
        return invalid(
            f"rank {rank} goes on with update {first.step}, but before the restart it had done {reached}", first
        )
    return None


def _state_unlike(history: History, done: Updates, rank: int, restart: int, left: Event | None) -> Verdict | None:
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
    if not earlier:
        if before:
            return unknown(f"rank {rank} started from step {step}, which is not on record before", said)
        return None
    for what in SHARED:
        if all(state.data[what] != recorded.data[what] for recorded in earlier):
            return invalid(
                f"rank {rank} started restart {restart} from step {step}, but its {what} state is not that step's",
                state,
                step=step,
                seen={
                    "now": state.data[what],
                    f"at step {step}": earlier[-1].data[what],
                    "recorded": earlier[-1].where,
                },
            )
    return None


def _unequal_starts(history: History, done: Updates, restart: int) -> Verdict | None:
    firsts = {rank: next(iter(mine.values())) for (rank, k), mine in done.items() if k == restart}
    if len({e.step for e in firsts.values()}) < 2:
        return None
    rank = min(firsts, key=lambda r: (firsts[r].step, r))
    steps = {f"rank {r}": e.step for r, e in sorted(firsts.items())}
    return invalid(f"the ranks go on with different updates: {steps}", firsts[rank], seen={"first update": steps})


@guarantee("ReplayIdentical", "each replayed update gives what it gave the first time")
def replay_identical(history: History, baseline: Baseline | None) -> Verdict:
    done = updates(history)
    judged: tuple[str, ...] = REPLAYED
    if history.plan.tolerance is not None:
        judged = ("lr", "ids")  # the scenario says that its bytes may differ
    elif not _seeds_its_generators(baseline):
        judged = tuple(what for what in REPLAYED if what != "rng")
    first_time: dict[tuple[int, int], Event] = {}
    replayed: list[tuple[Event, Event]] = []
    for (rank, _restart), steps in sorted(done.items(), key=lambda item: item[0][1]):
        for step, event in steps.items():
            first = first_time.setdefault((rank, step), event)
            if first is not event:
                replayed.append((first, event))
    if not replayed:
        return not_applicable("no update was replayed")
    for first, again in sorted(replayed, key=lambda pair: (pair[1].restart, pair[1].step, pair[1].rank)):
        different = [what for what in judged if _both_differ(first, again, what)]
        if different:
            what = different[0]
            return invalid(
                f"rank {again.rank}, update {again.step}: {', '.join(different)} differ from the first time",
                again,
                seen={"first time": first.data[what], "replayed": again.data[what], "recorded": first.where},
            )
    return valid(f"{len(replayed)} replayed updates are equal to the first time")


def _seeds_its_generators(baseline: Baseline | None) -> bool:
    """Whether two undisturbed runs drew the same numbers; a generator that is never seeded cannot be replayed."""
    if baseline is None:
        return False
    return all("rng" in digests for steps in baseline.updates.values() for digests in steps.values())


def _both_differ(first: Event, again: Event, what: str) -> bool:
    a, b = first.data.get(what), again.data.get(what)
    return a is not None and b is not None and a != b


@guarantee("EndsLikeBaseline", "the final state is byte-equal to that of the fault-free run")
def ends_like_baseline(history: History, baseline: Baseline | None) -> Verdict:
    if not ended_well(history):
        return not_applicable("the run failed: it has no final state")
    final = exits(history, history.restarts)
    with_model = {rank: e for rank, e in final.items() if e.data.get("params")}
    if final and not with_model:
        if any(e.restart == history.restarts for e in history.of(Kind.UPDATE)):
            return unknown("updates are on record, but no final state", next(iter(final.values())))
        return not_applicable("the script has no model on record")
    if missing := [rank for rank in history.ranks if rank not in with_model]:
        return unknown(f"the final state of rank {missing[0]} is not on record")
    if baseline is None:
        return unknown("there is no fault-free run to compare with")
    if history.plan.tolerance is not None:
        return _near_final(baseline, with_model, history.plan.tolerance)
    if baseline.repeatable is False:
        reason = baseline.reason or "two fault-free runs gave different digests"
        return unknown(f"the script is not repeatable: {reason}")
    if not baseline.final:
        return unknown(f"the fault-free run tells no final state: {baseline.reason or 'it has no model'}")
    return (
        _unlike_final(history, baseline, with_model)
        or _unlike_buffers(history, baseline)
        or valid(f"{' and '.join(SHARED)} of {len(with_model)} ranks equal the fault-free run's")
    )


def _unlike_final(history: History, baseline: Baseline, final: Mapping[int, Event]) -> Verdict | None:
    for what in SHARED:
        for rank, event in sorted(final.items()):
            if what not in baseline.final or event.data[what] == baseline.final[what]:
                continue
            at = _first_unlike(history, baseline, rank, what) or event
            return invalid(
                f"the final {what} of rank {rank} are not those of the fault-free run, "
                f"and first differ after update {at.step}",
                at,
                seen={"final": event.data[what], "fault-free": baseline.final[what]},
            )
    return None


def _unlike_buffers(history: History, baseline: Baseline) -> Verdict | None:
    """The first update after which rank 0 has other buffers than in the fault-free run.

    Rank 0's alone: its buffers are those that are saved and that DDP spreads; the others' may be local statistics.
    """
    last: dict[int, Event] = {e.step: e for e in history.of(Kind.UPDATE) if e.rank == 0}
    expected = baseline.updates.get(0, {})
    if not last or max(last) not in expected or last[max(last)].data["buffers"] == expected[max(last)]["buffers"]:
        return None
    at = next(e for step, e in sorted(last.items()) if e.data["buffers"] != expected.get(step, {}).get("buffers"))
    return invalid(
        f"the final buffers of rank 0 are not those of the fault-free run, and first differ after update {at.step}",
        at,
        seen={"buffers": at.data["buffers"], "fault-free": expected[at.step]["buffers"]},
    )


def _near_final(baseline: Baseline, final: Mapping[int, Event], tolerance: float) -> Verdict:
    """Whether each parameter tensor may lie within ``tolerance`` of the fault-free run's, relative to its size.

    Elements that differ by at most tolerance * |element| change the norm by at most tolerance * norm, and the sum by at
    most tolerance * sqrt(elements) * norm (Cauchy-Schwarz): more than that in either is a difference beyond it.
    """
    if not baseline.magnitudes:
        return unknown(f"the fault-free run tells no final parameters: {baseline.reason or 'it has no model'}")
    largest = 0.0
    for rank, event in sorted(final.items()):
        found = {name: values for name, *values in event.data.get("magnitudes", ())}
        for name, numel, total, norm in baseline.magnitudes:
            if name not in found or found[name][0] != numel:
                return invalid(f"rank {rank} ends without the parameter {name} of {numel} elements", event)
            scale = norm or 1.0
            apart = max(abs(found[name][2] - norm) / scale, abs(found[name][1] - total) / (scale * numel**0.5))
            if not apart <= tolerance:  # NaN is beyond every tolerance
                return invalid(
                    f"parameter {name} of rank {rank} ends {apart:.3g} away from the fault-free run, "
                    f"the scenario allows {tolerance:g}",
                    event,
                    seen={"sum and norm": found[name][1:], "fault-free": [total, norm]},
                )
            largest = max(largest, apart)
    return valid(f"the parameters of {len(final)} ranks end within {largest:.2g} of the fault-free run's")


def _first_unlike(history: History, baseline: Baseline, rank: int, what: str) -> Event | None:
    """The first update of the rank whose digest is not the baseline's."""
    expected = baseline.updates.get(rank, {})
    for event in history.of(Kind.UPDATE):
        if event.rank == rank and event.data[what] != expected.get(event.step, {}).get(what, event.data[what]):
            return event
    return None
