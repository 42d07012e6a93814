"""Does the run end in time, and is anything left of it?"""

from __future__ import annotations

from harness.checks.base import Verdict, guarantee, invalid, unknown, valid
from harness.checks.hang import hang_of
from harness.checks.progress import stuck_in_teardown
from harness.checks.records import by_rank, exits, listed
from harness.history import Baseline, History
from harness.wire import Event, Kind

GLOO_THREADS = ("gloo_", "pt_gloo_")  # how gloo and torch begin the names of its threads


@guarantee("EndsInTime", "the run ends by itself within its bound", needs_records=False)
def ends_in_time(history: History, _: Baseline | None) -> Verdict:
    outcome, bound_s = history.outcome, history.plan.deadline_s
    if not outcome.timed_out:
        return valid(f"ended after {outcome.duration_s:.1f} s of {bound_s:g} s")
    if stuck := stuck_in_teardown(history, history.restarts):
        return invalid(
            f"still running after {bound_s:g} s: {listed([e.rank for e in stuck])} in the teardown, after the last "
            f"update; what it was doing is in rank-{stuck[0].rank}/stacks-{stuck[0].restart}.txt",
            stuck[0],
            rank=stuck[0].rank if len(stuck) == 1 else None,
        )
    left = exits(history, history.restarts)
    if len(left) == history.plan.ranks and all(word.data["code"] == 0 for word in left.values()):
        last = max(left.values(), key=lambda word: word.t_ns)
        early_s = (history.outcome.ended_ns - last.t_ns) / 1e9
        return invalid(
            f"still running after {bound_s:g} s: all ranks had left, the last {early_s:.1f} s before, but the launcher "
            "or what they had started had not ended; on a busy machine a larger deadline_s is the cure",
            last,
        )
    found = hang_of(history, history.restarts)
    seen = found.seen
    return invalid(
        f"still running after {bound_s:g} s: {found}",
        seen.at,
        rank=found.rank,
        operation=seen.operation,
        seen={
            **found.lines,
            "ahead": list(seen.ahead),
            "behind": list(seen.behind),
            "absent": list(seen.absent),
            "calls": seen.calls,
        },
    )


@guarantee(
    "NothingLeft",
    "no process, port, shared memory or open file of the run stays behind, and no thread of a destroyed process group",
    needs_records=False,
)
def nothing_left(history: History, _: Baseline | None) -> Verdict:
    outcome = history.outcome
    if outcome.leftovers:
        return invalid(
            f"{len(outcome.leftovers)} left after the end, the first: {outcome.leftovers[0]}",
            seen={"leftovers": list(outcome.leftovers)},
            file="outcome.json",
        )
    if (left := _left_with_threads(history)) is not None:
        threads = [name for name in left.data["threads"] if name.startswith(GLOO_THREADS)]
        return invalid(
            f"rank {left.rank} was done and had destroyed its process group, but gloo's threads still ran: something "
            "still refers to the group, and one of them may abort the interpreter on its way out: import "
            "torch.distributed.nn before init_process_group and drop what holds the group (a wrapped model, a device "
            "mesh) before destroy_process_group; FSDP keeps it for good, so that os._exit(0) is the safe way out there",
            left,
            operation="destroy_process_group",
            seen={"threads": threads},
        )
    if outcome.exit_code is None and not outcome.timed_out:
        return unknown("the run was ended from outside before it could be swept", file="outcome.json")
    return valid("swept after the end: nothing was there")


def _left_with_threads(history: History) -> Event | None:
    """The first rank that left well after destroy_process_group, and through the interpreter's end, with such threads.

    They run on where something still refers to the group. ``os._exit`` is the safe way out there.
    """
    for event in by_rank(history.of(Kind.EXIT)):
        # A fault may end a rank that is about to destroy it.
        is_torn_down = event.phase == "teardown" and event.data.get("torn_down", True)
        is_well = event.data["code"] == 0 and not event.data.get("at_once")
        if is_torn_down and is_well and any(name.startswith(GLOO_THREADS) for name in event.data.get("threads", ())):
            return event
    return None
