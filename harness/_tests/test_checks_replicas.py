"""ReplicasAgree: parameters, optimizer state and scalers on all ranks, and how buffers begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness._tests.histories import Story, baseline, run
from harness.checks import GUARANTEES
from harness.history import Baseline
from harness.wire import Kind


def verdict(story: Story, against: Baseline | None = None) -> Any:
    return GUARANTEES["ReplicasAgree"].check(story.history(), against)


def diverging(ranks: int, rank: int, step: int, what: str) -> Story:
    """From update ``step`` on, one rank is another."""
    story = run(ranks=ranks).start().updates(1, 8).leave()
    for later in range(step, 9):
        story.edit(Kind.UPDATE, rank=rank, step=later, data={what: f"other-{later}"})
    return story


@pytest.mark.parametrize("what", ["params", "optimizer"])
@pytest.mark.parametrize("step", [1, 5, 8])
@pytest.mark.parametrize(("ranks", "rank"), [(2, 1), (2, 0), (4, 3), (4, 0)])
def test_one_rank_diverges(ranks: int, rank: int, step: int, what: str) -> None:
    found = verdict(diverging(ranks, rank, step, what), baseline(ranks))
    assert (found.outcome, found.rank, found.step) == ("invalid", rank, step), found
    assert what in found.reason
    assert found.seen["part"] == what


def test_of_two_ranks_without_a_baseline_nobody_is_named() -> None:
    found = verdict(diverging(2, 1, 5, "params"))
    assert (found.outcome, found.rank, found.step) == ("invalid", None, 5)


def test_of_two_ranks_an_earlier_restart_tells_who_is_odd() -> None:
    story = run().start().updates(1, 4).begin(1, 5).kill(1).cut_off().start(load=0).updates(1, 4).leave()
    story.edit(Kind.UPDATE, rank=1, step=3, restart=1, data={"params": "other"})
    found = verdict(story)
    assert (found.outcome, found.rank, found.step, found.restart) == ("invalid", 1, 3, 1)


@pytest.mark.parametrize("what", ["params", "optimizer"])
def test_a_checkpoint_that_one_rank_alone_restored(what: str) -> None:
    """With the optimizer state on rank 0 alone, the parameters are equal until the first update."""
    story = run(ranks=3).start(load=5).updates(6, 8).leave()
    story.edit(Kind.STATE, rank=2, data={what: "fresh"})
    found = verdict(story, baseline(3))
    assert (found.outcome, found.rank, found.step) == ("invalid", 2, 5)
    assert "before the first update" in found.reason


def test_of_scalers_the_one_that_was_restored_otherwise_is_named_and_shown() -> None:
    story = run().start().updates(1, 4).begin(1, 5).kill(1).cut_off().start(load=2).updates(3, 6).leave()
    story.edit(Kind.UPDATE, data={"scaler": [[1024.0, 3]]})
    for step in (3, 4, 5, 6):
        story.edit(Kind.UPDATE, restart=1, step=step, data={"params": "scaled by both", "optimizer": "too"})
    story.edit(Kind.UPDATE, restart=1, rank=1, step=3, data={"scaler": [[65536.0, 0]], "params": "another"})
    found = verdict(story, baseline())
    assert (found.outcome, found.rank, found.step, found.restart) == ("invalid", 1, 3, 1)
    assert found.seen["scaler"] == {"rank 0": [[1024.0, 3]], "rank 1": [[65536.0, 0]]}


def test_buffers_that_differ_before_anything_was_trained() -> None:
    story = run(ranks=3).start().updates(1, 3).leave().edit(Kind.STATE, rank=1, data={"buffers": "seven, not zero"})
    found = verdict(story, baseline(3))
    assert (found.outcome, found.rank, found.step) == ("invalid", 1, 0)
    assert "buffers before the first update" in found.reason


def test_both_unlike_the_baseline_names_nobody() -> None:
    story = diverging(2, 1, 5, "params").edit(Kind.UPDATE, rank=0, step=5, data={"params": "third"})
    assert verdict(story, baseline()).rank is None


def healthy_buffers() -> Story:
    story = run().start().updates(1, 8).leave()
    return story.edit(Kind.UPDATE, rank=1, data={"buffers": "local statistics"})


def restored_buffers() -> Story:
    """Each rank restores the statistics that it had."""
    story = run().start().updates(1, 4).begin(1, 5).kill(1).cut_off().start(load=2).updates(3, 6).leave()
    return story.edit(Kind.STATE, rank=1, restart=1, data={"buffers": "local statistics"})


def skipped_by_all() -> Story:
    """An overflow that all ranks agree on: the update changes nothing, anywhere."""
    story = run().start().updates(1, 8).leave()
    return story.edit(Kind.UPDATE, step=5, data={"params": "params-4", "optimizer": "optimizer-4"})


HEALTHY: dict[str, Callable[[], Story]] = {
    "equal on all ranks": lambda: run(ranks=4).start().updates(1, 8).leave(),
    "batch normalisation has local statistics": healthy_buffers,
    "a restart goes on with local statistics": restored_buffers,
    "each rank has its own random state": lambda: run(ranks=3).start().updates(1, 8).leave(),
    "all ranks skip an update together": skipped_by_all,
    "one rank is an update further when it is killed": lambda: (
        run().start().updates(1, 4).begin(0, 5).begin(1, 5).update(1, 5).kill(0)
    ),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy(name: str) -> None:
    found = verdict(HEALTHY[name](), baseline())
    assert found.outcome == "valid", found


def test_nothing_to_compare() -> None:
    assert verdict(run(ranks=1).start().updates(1, 3).leave()).outcome == "not-applicable"
    assert verdict(run().start().leave()).outcome == "not-applicable"


# -- updates that overflow -----------------------------------------------------------------------------------------


def overflowing(ranks: int, on: set[int]) -> Story:
    """The gradient of update 5 overflows; ``on`` are the ranks that leave it out, and the others stop after it."""
    story = run(ranks=ranks).start().updates(1, 4)
    story.step = 5
    for rank in range(ranks):
        if rank in on:
            story.tell(rank, Kind.SKIPPED, phase="backward", ids=[], batches=1)
        else:
            story.update(rank, 5)
    return story


@pytest.mark.parametrize(("ranks", "on"), [(2, 0), (2, 1), (4, 0), (4, 3)])
def test_a_rank_that_leaves_an_update_out_alone_is_named_though_no_state_can_be_compared(ranks: int, on: int) -> None:
    found = verdict(overflowing(ranks, {on}), baseline(ranks))
    assert (found.outcome, found.rank, found.step) == ("invalid", on, 5), found
    assert f"rank {on} left update 5 out" in found.reason


def test_a_rank_that_alone_makes_an_overflowed_update_is_named() -> None:
    assert verdict(overflowing(4, {0, 1, 3}), baseline(4)).rank == 2
    story = overflowing(2, {0}).edit(Kind.UPDATE, rank=1, step=5, data={"params": "not finite"})
    assert verdict(story, baseline(2)).rank == 1


def test_of_two_ranks_that_decided_apart_nobody_is_named_where_nothing_tells_what_is_right() -> None:
    found = verdict(overflowing(2, {0}))
    assert (found.outcome, found.rank, found.step) == ("invalid", None, 5)


def test_an_update_that_all_leave_out_and_make_with_the_next_batch_is_sound() -> None:
    story = overflowing(3, {0, 1, 2}).updates(5, 8).leave()
    assert verdict(story, baseline(3)).outcome == "valid"
