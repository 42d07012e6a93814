"""Optimizers in which each rank keeps something of its own: shares of the work, times, losses of its own batches."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import pytest

from harness._tests.histories import Story, baseline, run
from harness.baseline import compared
from harness.checks import GUARANTEES, Verdict
from harness.checks.replicas import has_own_optimizers
from harness.history import Baseline
from harness.wire import Kind

STEPS = range(1, 13)


def changed(part: str, steps: Collection[int] = STEPS, *, rank: int = 1, value: str = "its own") -> Baseline:
    """The fault-free run, but for what the rank has in these steps."""
    one = baseline()
    return replace(
        one,
        updates={
            r: {s: {**d, **({part: value} if (r, s) in {(rank, s) for s in steps} else {})} for s, d in each.items()}
            for r, each in one.updates.items()
        },
    )


def killed() -> Story:
    """Killed in step 9; goes on from step 5, with rank 0's optimizer on both ranks."""
    story = run().start().updates(1, 8).begin(1, 9).kill(1).cut_off().start(load=5).updates(6, 12).leave()
    for step in range(1, 13):
        story.edit(Kind.UPDATE, rank=1, step=step, data={"optimizer": "its own"})
    return story


def verdicts(story: Story, against: Baseline) -> dict[str, Verdict]:
    names = ("ReplicasAgree", "RollbackExact", "ReplayIdentical", "EndsLikeBaseline")
    return {name: GUARANTEES[name].check(story.history(), against) for name in names}


def outcomes(story: Story, against: Baseline) -> dict[str, str]:
    return {name: found.outcome for name, found in verdicts(story, against).items()}


HEALTHY = dict.fromkeys(("ReplicasAgree", "RollbackExact", "ReplayIdentical", "EndsLikeBaseline"), "valid")


def test_what_each_rank_keeps_for_itself_without_consequence_is_no_difference() -> None:
    assert outcomes(killed(), changed("optimizer")) == HEALTHY
    assert outcomes(killed(), baseline()) != HEALTHY


def test_times_are_no_part_of_what_the_fault_free_run_repeats() -> None:
    timed = compared(changed("optimizer", rank=0, value="3 ms"), changed("optimizer", rank=0, value="4 ms"))
    assert (timed.repeatable, timed.reason) == (True, "")
    assert compared(timed, changed("optimizer", value="5 ms")) == timed  # when it is tried again
    story = killed().edit(Kind.UPDATE, restart=1, data={"optimizer": "6 ms"})
    assert outcomes(story, timed) == HEALTHY
    assert verdicts(story, baseline())["ReplayIdentical"].outcome == "invalid"


@pytest.mark.parametrize("part", ["params", "buffers"])
def test_where_anything_else_differs_the_optimizer_is_not_left_out(part: str) -> None:
    found = compared(changed("optimizer"), changed(part))
    assert found.repeatable is False


@pytest.mark.parametrize(
    ("what", "tell"),
    [
        ("ReplicasAgree", lambda story: story.edit(Kind.UPDATE, rank=1, step=7, restart=1, data={"params": "x"})),
        ("RollbackExact", lambda story: story.edit(Kind.STATE, rank=1, restart=1, data={"params": "x"})),
        ("ReplayIdentical", lambda story: story.edit(Kind.UPDATE, rank=1, step=6, restart=1, data={"optimizer": "x"})),
    ],
)
def test_what_is_lost_of_it_is_found(what: str, tell: Callable[[Story], Story]) -> None:
    found = verdicts(tell(killed()), changed("optimizer"))[what]
    assert (found.outcome, found.rank) == ("invalid", 1)


WHOSE: dict[str, tuple[Baseline | None, bool]] = {
    "nobody knows": (None, False),
    "there is none": (baseline(updates={}), False),
    "all ranks have the same": (baseline(), False),
    "one rank's is another": (changed("optimizer"), True),
    "one rank's is another, and its parameters are, too": (
        replace(changed("optimizer"), updates={0: baseline().updates[0], 1: {
            s: {**d, "optimizer": "x", "params": "x" if s > 5 else d["params"]}
            for s, d in baseline().updates[1].items()}}),
        False,
    ),
    "one rank's is another after the last update: what comes of it nobody sees": (changed("optimizer", [12]), False),
}  # fmt: skip


@pytest.mark.parametrize("what", WHOSE)
def test_ranks_have_optimizers_of_their_own_if(what: str) -> None:
    against, expected = WHOSE[what]
    assert has_own_optimizers(against) is expected
