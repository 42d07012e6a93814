"""A rank that came back from a collective it never sent, and what looks like it and is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from harness._tests.histories import Story, run
from harness.checks import GUARANTEES
from harness.checks.diagnosis import diagnose
from harness.history import History
from harness.wire import Kind

GATHER: dict[str, Any] = {"phase": "save", "numel": 8, "dtype": "uint8", "reduce_op": None, "site": "store.py:9"}


def in_a_save(ranks: int, *, sent: int, peers: int) -> Story:
    """Update 3 is saved: rank 1 sends ``sent`` votes, the others ``peers``; before that each has sent 4 calls."""
    story = run(ranks=ranks, expect="stops").start().updates(1, 3)
    for rank in range(ranks):
        story.tell(rank, Kind.SAVE_START, phase="save", path="/run/checkpoints/step-3")
        for _ in range(sent if rank == 1 else peers):
            story.collective(rank, "all_gather", **GATHER)
    return story


def leaves(story: Story, calls: int, last: str = "all_gather", *, in_collective: bool = False, **counted: int) -> Story:
    """Rank 1 leaves by an exception after it came back from so many calls; the others then find that it is gone."""
    returned = {"world": {"calls": calls, "last": last} | counted}
    story.tell(1, Kind.SAVE_ERROR, phase="save", path="/run/checkpoints/step-3", error="SaveFailed")
    story.raises(1, "SaveFailed", "unreadable", in_collective=in_collective, phase="save", returned=returned)
    return story.cut_off()


def exits_early() -> Story:
    """It has caught its own error, and leaves with a code."""
    story = in_a_save(2, sent=1, peers=2)
    story.tell(1, Kind.EXIT, phase="save", code=3, returned={"world": {"calls": 6, "last": "all_gather"}})
    return story._reported(1, 3).cut_off()


def peer_aborts_later() -> Story:
    """The peer finds its connections closed before it comes to the vote, and its backend aborts it."""
    story = run(expect="stops").start().updates(1, 3)
    for rank in (0, 1):
        story.tell(rank, Kind.SAVE_START, phase="save", path="/run/checkpoints/step-3")
    story.raises(
        1, "SaveFailed", "never exchanged", phase="save", returned={"world": {"calls": 5, "last": "all_gather"}}
    )
    return story.kill(0, code=-6, fatal="Aborted")


FOUND: dict[str, Callable[[], Story]] = {
    "the last of three votes": lambda: leaves(in_a_save(2, sent=2, peers=3), 7),
    "the first of three votes": lambda: leaves(in_a_save(2, sent=0, peers=1), 5),
    "one of three ranks": lambda: leaves(in_a_save(3, sent=1, peers=2), 6),
    "the peers have not come to it yet": lambda: leaves(in_a_save(2, sent=1, peers=1), 6),
    "an error that looks as if communication had failed": lambda: leaves(
        in_a_save(2, sent=1, peers=2), 6, in_collective=True
    ),
    "it leaves by an exit code": exits_early,
    "the peer aborts before it comes to it": peer_aborts_later,
}


@pytest.mark.parametrize("name", FOUND)
def test_it_is_named_with_step_and_operation(name: str) -> None:
    history = FOUND[name]().history(1)
    found = GUARANTEES["CollectivesAgree"].check(history, None)
    assert (found.outcome, found.rank, found.step, found.operation) == ("invalid", 1, 3, "all_gather"), found
    assert found.seen["how"] == "skipped"
    (cause,) = diagnose(history)
    assert (cause.how, cause.rank, cause.step, cause.phase) == ("skipped", 1, 3, "save"), cause


def test_a_peer_that_aborts_in_the_call_is_a_victim_also_before_anyone_has_left() -> None:
    """It is sent what follows in place of the vote; the other is ended by the launcher, before its last word."""
    story = in_a_save(2, sent=1, peers=2)
    returned = {"world": {"calls": 6, "last": "all_gather"}}
    story.collective(1, "all_gather", **{**GATHER, "numel": 64}, returned=returned)
    history = story.kill(0, code=-6, fatal="Aborted").ended_by_launcher().history(1)
    found = GUARANTEES["CollectivesAgree"].check(history, None)
    assert (found.outcome, found.rank, found.step, found.operation) == ("invalid", 1, 3, "all_gather"), found
    (cause,) = diagnose(history)
    assert (cause.how, cause.rank, cause.step) == ("skipped", 1, 3), cause


def test_it_is_named_where_the_peer_sent_it_and_not_where_the_next_call_was_made() -> None:
    """A script that does not look at what came back goes on, and counts in the next update."""
    story = run(ranks=2, expect="stops").start().updates(1, 3)
    returned = {"world": {"calls": 5, "last": "all_reduce"}}
    story.collective(0, step=4, phase="load_batch", numel=2, returned=returned)
    history = story.collective(1).cut_off(1).ended_by_launcher(0).history(1)
    (cause,) = diagnose(history)
    assert (cause.how, cause.rank, cause.step, cause.phase) == ("skipped", 0, 3, "backward"), cause


def another_operation_at_the_peer() -> Story:
    """The peer has gone on: what it sent next is not what was left out."""
    story = in_a_save(2, sent=1, peers=1)
    story.collective(0, "broadcast", phase="eval", numel=1, root=0, reduce_op=None)
    return leaves(story, 6)


def test_what_was_left_out_is_told_by_who_came_back_from_it() -> None:
    found = GUARANTEES["CollectivesAgree"].check(another_operation_at_the_peer().history(1), None)
    assert (found.rank, found.operation, found.step) == (1, "all_gather", 3), found


def lost_line(history: History) -> History:
    return replace(history, damaged=("rank-1/events-0.jsonl:9: torn",))


NOT_FOUND: dict[str, tuple[Callable[[], Story], str]] = {
    # name: (what happened, how it is named)
    "it raises before the call": (lambda: leaves(in_a_save(2, sent=1, peers=2), 5), "exception"),
    "the call raises, which was sent": (lambda: leaves(in_a_save(2, sent=2, peers=2), 5), "exception"),
    "it is killed in the call": (lambda: in_a_save(2, sent=1, peers=2).kill(1).cut_off(), "signal"),
    "the call raises, and is counted": (lambda: leaves(in_a_save(2, sent=2, peers=2), 5, raised=1), "exception"),
    "an older record without the count": (
        lambda: in_a_save(2, sent=1, peers=2).raises(1, "SaveFailed", "unreadable").cut_off(), "exception"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_FOUND)
def test_other_ends_at_the_same_place_keep_their_name(name: str) -> None:
    tell, how = NOT_FOUND[name]
    history = tell().history(1)
    assert GUARANTEES["CollectivesAgree"].check(history, None).outcome == "valid"
    (cause,) = diagnose(history)
    assert (cause.how, cause.rank) == (how, 1), cause


def test_a_record_with_lost_lines_accuses_nobody() -> None:
    (cause,) = diagnose(lost_line(leaves(in_a_save(2, sent=1, peers=2), 6).history(1)))
    assert cause.how == "exception"


# -- a call that nobody asked for ----------------------------------------------------------------------------------


def both_find_themselves_out_of_step(story: Story, calls: dict[int, int], **returned: Any) -> History:
    """All votes agree in kind and number; what is in them does not, and each rank raises."""
    for rank, count in calls.items():
        told = {"world": {"calls": count, "last": "all_gather"} | {"raised": 0} | returned}
        story.tell(rank, Kind.SAVE_ERROR, phase="save", path="/run/checkpoints/step-3", error="SaveFailed", ranks=[])
        story.raises(rank, "SaveFailed", "out of step", phase="save", returned=told)
    return story.history(1)


@pytest.mark.parametrize("odd", [0, 1])
def test_between_votes_that_look_alike_the_rank_that_sent_more_than_it_called_for_is_named(odd: int) -> None:
    story = in_a_save(2, sent=2, peers=2)
    history = both_find_themselves_out_of_step(story, {1: 6 - (odd == 1), 0: 6 - (odd == 0)})
    found = GUARANTEES["CollectivesAgree"].check(history, None)
    assert (found.outcome, found.rank, found.step, found.operation) == ("invalid", odd, 3, "all_gather"), found
    assert found.seen["how"] == "extra"
    (cause,) = diagnose(history)
    assert (cause.how, cause.rank, cause.step, cause.phase) == ("extra", odd, 3, "save"), cause


HONEST: dict[str, Callable[[], History]] = {
    "each came back from what it sent": lambda: both_find_themselves_out_of_step(
        in_a_save(2, sent=2, peers=2), {1: 6, 0: 6}
    ),
    "a call raised": lambda: both_find_themselves_out_of_step(in_a_save(2, sent=2, peers=2), {1: 5, 0: 5}, raised=1),
    "an older record does not say how many raised": lambda: leaves(in_a_save(2, sent=2, peers=2), 5).history(1),
    "a thread beside the training is in the middle of one": lambda: both_find_themselves_out_of_step(
        in_a_save(2, sent=2, peers=2).collective(1, aside=True).collective(0, aside=True), {1: 6, 0: 6}
    ),
}


@pytest.mark.parametrize("name", HONEST)
def test_nobody_is_accused_of_a_call_that_was_asked_for(name: str) -> None:
    assert GUARANTEES["CollectivesAgree"].check(HONEST[name](), None).outcome == "valid"
