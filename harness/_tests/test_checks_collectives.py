"""CollectivesAgree: who parted from the others, where, and what healthy jobs do that looks like it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness._tests.histories import Story, run
from harness.checks import GUARANTEES
from harness.faults.base import At
from harness.faults.exit import Exit
from harness.wire import Kind

BUCKETS = ("first", "second")


def verdict(story: Story, exit_code: int = 0) -> Any:
    return GUARANTEES["CollectivesAgree"].check(story.history(exit_code), None)


def step(story: Story, number: int, change: Callable[[int, str], list[dict[str, Any]]]) -> Story:
    """One update of two buckets; ``change(rank, bucket)`` says what is sent for it, usually one."""
    story.step = number
    for rank in sorted(story.alive):
        for bucket in BUCKETS:
            numel = 500 if bucket == "first" else 300
            for sent in change(rank, bucket):
                story.collective(rank, **{"numel": numel} | sent)
    for rank in sorted(story.alive):
        story.update(rank, number)
    return story


def usual(_rank: int, _bucket: str) -> list[dict[str, Any]]:
    return [{}]


def at(rank: int, bucket: str, sent: list[dict[str, Any]]) -> Callable[[int, str], list[dict[str, Any]]]:
    return lambda r, b: sent if (r, b) == (rank, bucket) else [{}]


def changed(change: Callable[[int, str], list[dict[str, Any]]], *, ranks: int, steps: int = 8, wrong: int = 5) -> Story:
    story = run(ranks=ranks).start()
    for number in range(1, steps + 1):
        step(story, number, change if number == wrong else usual)
    return story.leave()


SKIP: list[dict[str, Any]] = []
EXTRA: list[dict[str, Any]] = [{}, {}]

PLANTED = [
    # (rank that parts, bucket, what it sends instead, how that is called, the operation)
    pytest.param("first", SKIP, "skipped", "all_reduce", id="a collective is left out, the next has another shape"),
    pytest.param("second", SKIP, "skipped", "all_reduce", id="the last collective of a step is left out"),
    pytest.param("first", EXTRA, "extra", "all_reduce", id="a collective of equal shape is put in"),
    pytest.param("second", EXTRA, "extra", "all_reduce", id="the last collective of a step is sent twice"),
    pytest.param("first", [{"numel": 7}], "mismatch", "all_reduce", id="another number of elements"),
    pytest.param("first", [{"dtype": "int32"}], "mismatch", "all_reduce", id="another type, silent on gloo"),
    pytest.param(
        "first", [{"reduce_op": "MAX"}], "mismatch", "all_reduce", id="another reduce operation, silent on gloo"
    ),
    pytest.param(
        "second", [{"op": "broadcast", "root": 0}], "mismatch", "broadcast against all_reduce", id="another operation"
    ),
]


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize(("bucket", "sent", "how", "operation"), PLANTED)
def test_one_rank_parts(ranks: int, bucket: str, sent: list[dict[str, Any]], how: str, operation: str) -> None:
    for culprit in (0, ranks - 1):
        found = verdict(changed(at(culprit, bucket, sent), ranks=ranks))
        assert (found.outcome, found.rank, found.step) == ("invalid", culprit, 5), found
        assert (found.seen["how"], found.operation) == (how, operation), found


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("wrong", [1, 2, 8])
@pytest.mark.parametrize("sent", [SKIP, EXTRA], ids=["left out", "put in"])
def test_the_only_collective_of_a_step_in_any_step(ranks: int, wrong: int, sent: list[dict[str, Any]]) -> None:
    """All collectives of the job have one shape and one call site: only the steps tell them apart."""
    story = run(ranks=ranks).start()
    for number in range(1, 9):
        story.step = number
        for rank in range(ranks):
            for _ in sent if (rank, number) == (1, wrong) else [{}]:
                story.collective(rank)
        for rank in range(ranks):
            story.update(rank, number)
    found = verdict(story.leave())
    assert (found.outcome, found.rank, found.step) == ("invalid", 1, wrong), found
    assert found.seen["how"] == ("extra" if sent else "skipped")


def test_a_skip_whose_peer_never_comes_further() -> None:
    """Unequal shapes end the job at once: the peer's next collective is not on record."""
    story = run(ranks=2).start()
    for number in range(1, 5):
        step(story, number, usual)
    story.step = 5
    story.collective(0, numel=500).collective(1, numel=300)
    story.kill(1, code=-6, fatal="Aborted").cut_off(0)
    found = verdict(story, exit_code=1)
    assert (found.outcome, found.rank, found.step, found.seen["how"]) == ("invalid", 1, 5, "skipped")


def test_the_last_collective_of_the_job_is_left_out() -> None:
    story = run(ranks=2).start().updates(1, 3).begin(0, 4)
    story.update(1, 4).exits(1, 0)
    story.cut_off(0)
    found = verdict(story, exit_code=1)
    assert (found.outcome, found.rank, found.step, found.operation) == ("invalid", 1, 4, "all_reduce")


def test_counts_differ_although_all_ended_well() -> None:
    story = run(ranks=3).start().updates(1, 3)
    story.collective(2, phase="eval", numel=1)
    for rank in range(3):
        story.exits(rank, 0)
    found = verdict(story)
    assert (found.outcome, found.rank, found.seen["how"]) == ("invalid", 2, "extra")


@pytest.mark.parametrize("ranks", [2, 3])
def test_collectives_of_one_shape_in_another_order(ranks: int) -> None:
    story = run(ranks=ranks).start().updates(1, 2)
    for rank in range(ranks):
        for line in (72, 71) if rank == 1 else (71, 72):
            story.collective(rank, phase="eval", numel=1, site=f"train.py:{line}")
    story.updates(3, 4)
    found = verdict(story.leave())
    assert (found.outcome, found.step, found.seen["how"]) == ("invalid", 2, "swapped" if ranks > 2 else "mismatch")
    assert found.rank == (1 if ranks > 2 else None)  # between two ranks nothing says which order is right


def test_a_models_own_collectives_may_come_by_different_lines() -> None:
    """Each rank goes backward from its own line, as where the kind of batch decides."""
    story = run(ranks=2).start().updates(1, 2)
    for rank in range(2):
        for line in (72, 71) if rank == 1 else (71, 72):
            story.collective(rank, site=f"train.py:{line}", implied=True)
    assert verdict(story.updates(3, 4).leave()).outcome == "valid"


def test_two_against_two_leaves_it_undecided() -> None:
    story = run(ranks=4).start().updates(1, 4)
    for rank in range(4):
        story.collective(rank, phase="eval", numel=8 if rank < 2 else 2)
    found = verdict(story.leave())
    assert (found.outcome, found.rank, found.step) == ("invalid", None, 4)
    assert "nothing on record tells" in found.reason


def test_two_ranks_that_differ_in_every_step_are_undecided() -> None:
    story = changed(at(1, "first", [{"numel": 7}]), ranks=2, steps=1, wrong=1)
    found = verdict(story)
    assert (found.outcome, found.rank, found.step) == ("invalid", None, 1)


def attempts(*of_rank_0: int) -> Story:
    """Update 3 overflows twice; rank 1 sends one reduction in each attempt at it, rank 0 as many as are given."""
    story = run().start().updates(1, 2)
    for left_out, count in enumerate(of_rank_0):
        about: dict[str, Any] = {"left_out": left_out} if left_out else {}
        for rank, number in ((0, count), (1, 1)):
            for _ in range(number):
                story.collective(rank, step=3, phase="backward", **about)
    return story


def test_attempts_that_overflow_are_told_apart_though_all_calls_are_alike_and_equally_many() -> None:
    found = verdict(attempts(1, 2, 0))
    assert (found.outcome, found.rank, found.step, found.seen["how"]) == ("invalid", 0, 3, "extra"), found
    assert verdict(attempts(1, 1, 1)).outcome == "valid"


def test_three_against_one_even_if_the_odd_one_comes_first() -> None:
    story = run(ranks=4).start().updates(1, 4)
    for rank in range(4):
        story.collective(rank, phase="eval", numel=2 if rank == 0 else 8)
    found = verdict(story.leave())
    assert (found.outcome, found.rank) == ("invalid", 0)


def test_a_subgroup_has_its_own_order() -> None:
    story = run(ranks=4).start().updates(1, 2)
    for rank in (0, 1, 2):
        story.tell(rank, Kind.GROUP, group="some", ranks=[0, 1, 2], backend="gloo")
    for rank in (0, 1, 2):
        story.collective(rank, group="some", numel=9 if rank == 2 else 5)
    found = verdict(story.updates(3, 4).leave())
    assert (found.outcome, found.rank, found.step) == ("invalid", 2, 2)


def test_what_was_skipped_by_a_fault_was_not_sent() -> None:
    story = run(ranks=2).start().updates(1, 4)
    for number in range(5, 8):
        for rank in range(2):
            story.step = number
            story.collective(rank, **{"faulted": "skipped"} if (rank, number) == (1, 5) else {})
        for rank in range(2):
            story.update(rank, number)
    found = verdict(story.leave())
    assert (found.outcome, found.rank, found.step, found.operation) == ("invalid", 1, 5, "all_reduce")


def stops_alone(*, is_told: bool = False, code: int = 0) -> Story:
    """Rank 1 comes to the end of its script after update 4, by itself or by a fault; rank 0 wants it in update 5."""
    story = run(ranks=2, faults=[Exit(rank=1, at=At(step=5, phase="forward"))]).start().updates(1, 4)
    if is_told:
        story.fire(1, phase="forward", step=5)
    return story.exits(1, code).begin(0, 5).cut_off()


def test_a_rank_that_is_done_while_the_others_go_on() -> None:
    found = verdict(stops_alone(), exit_code=1)
    assert (found.outcome, found.rank, found.step, found.operation) == ("invalid", 1, 5, "all_reduce")


@pytest.mark.parametrize("told", [{"is_told": True}, {"code": 1}], ids=["by a fault", "with an error"])
def test_a_rank_that_was_ended_owes_no_more_collectives(told: dict[str, Any]) -> None:
    assert verdict(stops_alone(**told), exit_code=1).outcome == "valid"


@pytest.mark.parametrize("order", [("eval", "save"), ("save", "eval")], ids=" before ".join)
def test_an_evaluation_and_a_save_in_the_order_of_the_script(order: tuple[str, str]) -> None:
    """Rank 2 leaves the last collective of the first of them out, and goes on to the second."""
    story = run(ranks=3).start().updates(1, 4)
    sizes = {"eval": 9, "save": 8}
    for rank in range(3):
        story.tell(rank, Kind.PHASE, phase=order[0])
        phase = order[rank == 2]
        if rank == 2:
            story.tell(rank, Kind.PHASE, phase=phase)
        story.collective(rank, phase=phase, numel=sizes[phase], site=f"train.py:{sizes[phase]}")
    found = verdict(story.cut_off(), exit_code=1)
    assert (found.rank, found.seen["how"], found.reason.count(order[0])) == (2, "skipped", 1), found


def test_an_evaluation_and_a_save_that_no_rank_comes_through_have_no_order() -> None:
    """Rank 0 alone evaluates, and nothing tells whether the others' save comes before or after that."""
    story = run(ranks=3).start().updates(1, 4)
    for rank, phase in enumerate(("eval", "save", "save")):
        story.tell(rank, Kind.PHASE, phase=phase)
        op = "all_reduce" if phase == "eval" else "all_gather"
        story.collective(rank, op, phase=phase, numel=9, site=f"train.py:{phase}")
    found = verdict(story.cut_off(), exit_code=1)
    assert (found.rank, found.step, found.operation) == (0, 4, "all_reduce against all_gather"), found


def rebuilt_buckets() -> Story:
    story = run(ranks=2).start()
    for rank in range(2):
        story.step = 1
        story.collective(rank, numel=800)
        story.update(rank, 1)
    for number in range(2, 6):
        step(story, number, usual)
    return story.leave()


def rank0_alone_evaluates_then_all_broadcast() -> Story:
    story = run(ranks=2).start().updates(1, 4)
    story.tell(0, Kind.PHASE, step=5, phase="load_batch").tell(0, Kind.PHASE, phase="eval")
    # Rank 0 asked its evaluation loader for a batch more than there is: its tag is that of the next update.
    story.tell(0, Kind.PHASE, step=5, phase="load_batch")
    story.tell(0, Kind.COLLECTIVE, step=5, phase="load_batch", **stop_flag())
    story.tell(1, Kind.COLLECTIVE, step=4, phase="optimizer_step", **stop_flag())
    return story.updates(5, 8).leave()


def stop_flag() -> dict[str, Any]:
    shape = {"numel": 1, "dtype": "uint8", "root": 0, "reduce_op": None}
    return {"group": "world", "op": "broadcast", "site": "train.py:80"} | shape


def rank0_alone_saves_then_all_wait() -> Story:
    story = run(ranks=2).start().updates(1, 4)
    for rank in range(2):
        phase = "save" if rank == 0 else "optimizer_step"
        story.collective(rank, "barrier", phase=phase, numel=0, dtype=None, reduce_op=None, site="train.py:77")
    return story.updates(5, 8).leave()


def root_and_others_call_from_two_lines() -> Story:
    story = run(ranks=2).start().updates(1, 2)
    for rank in range(2):
        story.collective(rank, "broadcast", phase="eval", root=0, reduce_op=None, site=f"train.py:{50 + rank}")
    return story.updates(3, 4).leave()


def rank0_knows_the_step_first_while_loading() -> Story:
    story = run(ranks=2).start(load=5)
    for rank in range(2):
        story.tell(rank, Kind.COLLECTIVE, step=5 * (rank == 0), phase="load", **stop_flag())
    return story.updates(6, 8).leave()


def uneven_exchange_and_messages() -> Story:
    story = run(ranks=2).start().updates(1, 2)
    for rank in range(2):
        story.collective(rank, "all_to_all", numel=10 + rank)
        story.collective(rank, "send" if rank == 0 else "recv", numel=5)
    return story.updates(3, 4).leave()


def killed_between_two_collectives() -> Story:
    story = run(ranks=2).start().updates(1, 4).begin(0, 5).kill(1).cut_off(0)
    return story.start(load=0).updates(1, 6).leave()


def vote_aside(story: Story, rank: int, phase: str) -> Story:
    """A save that goes on in a thread votes in a group of its own, wherever the training is by then."""
    data: dict[str, Any] = {"numel": 8, "dtype": "uint8", "reduce_op": None, "site": "store.py:9"}
    return story.collective(rank, "all_gather", phase=phase, group="votes", aside=True, **data)


def a_thread_votes_steps_later(*, is_killed: bool = False) -> Story:
    story = run(ranks=2).start()
    for rank in range(2):
        story.tell(rank, Kind.GROUP, group="votes", ranks=[0, 1], backend="gloo")
    vote_aside(story.updates(1, 4), 0, "forward").updates(5, 8)
    if is_killed:
        return story.begin(1, 9).kill(1).cut_off().start(load=4).updates(5, 12).leave()
    return vote_aside(story, 1, "backward").updates(9, 10).leave()


HEALTHY = {
    "a thread votes some steps later than that of the peer": a_thread_votes_steps_later,
    "a rank is killed while its thread owes a vote": lambda: a_thread_votes_steps_later(is_killed=True),
    "two ranks without trouble": lambda: run(ranks=2).start().updates(1, 8).leave(),
    "four ranks that save": lambda: run(ranks=4).start().updates(1, 5).save().updates(6, 8).save().leave(),
    "DDP rebuilds its buckets after the first step": rebuilt_buckets,
    "rank 0 alone evaluates before a common broadcast": rank0_alone_evaluates_then_all_broadcast,
    "rank 0 alone saves before a common barrier": rank0_alone_saves_then_all_wait,
    "root and the others call from two lines of the script": root_and_others_call_from_two_lines,
    "rank 0 knows the step first while loading": rank0_knows_the_step_first_while_loading,
    "uneven all_to_all, and messages between two ranks": uneven_exchange_and_messages,
    "a killed rank has sent fewer": killed_between_two_collectives,
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy(name: str) -> None:
    found = verdict(HEALTHY[name]())
    assert found.outcome == "valid", found


def test_a_job_without_collectives_has_nothing_to_agree_on() -> None:
    story = run(ranks=2).start().drop(Kind.COLLECTIVE)
    assert verdict(story).outcome == "not-applicable"
