"""CollectivesAgree: which of two ranks is wrong, where only the fault-free run tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from harness._tests.histories import Story, baseline, run
from harness._tests.test_checks_collectives import stop_flag
from harness.checks import GUARANTEES
from harness.wire import Kind


def begun(ranks: int, is_second_try: bool = False) -> Story:
    story = run(ranks=ranks).start()
    return story.kill(1).cut_off().start(with_store=True) if is_second_try else story


def skipped_at_once(rank: int, *, sent: int = 0, is_second_try: bool = False) -> Story:
    """In step 1 a rank sends ``sent`` gradients, not one, and there is no step 2: what comes next fits nothing.

    ``is_second_try``: a launch before it ended without a checkpoint, so that it begins like a first one.
    """
    story = begun(2, is_second_try)
    story.step = 1
    for r in range(2):
        for _ in range(sent if r == rank else 1):
            story.collective(r)
    ahead = rank if sent == 0 else 1 - rank
    story.update(ahead, 1)
    story.tell(ahead, Kind.COLLECTIVE, step=2, phase="forward", **stop_flag())
    return story.cut_off()


@pytest.mark.parametrize("is_second_try", [False, True])
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(("sent", "how"), [(0, "skipped"), (2, "extra")])
def test_in_the_first_step_only_the_fault_free_run_knows_who_is_wrong(
    rank: int, sent: int, how: str, is_second_try: bool
) -> None:
    story = skipped_at_once(rank, sent=sent, is_second_try=is_second_try)
    check = GUARANTEES["CollectivesAgree"].check
    found = check(story.history(1), baseline())
    assert (found.outcome, found.rank, found.step, found.operation) == ("invalid", rank, 1, "all_reduce"), found
    assert found.seen["how"] == how
    assert check(story.history(1), None).rank is None


GATHER: dict[str, Any] = {"phase": "save", "numel": 8, "dtype": "uint8", "reduce_op": None, "site": "store.py:9"}
HEAD: dict[str, Any] = {"phase": "forward", "numel": 5, "dtype": "int32", "root": 0, "reduce_op": None}
TAIL: dict[str, Any] = HEAD | {"numel": 1}


def with_rebuild_and_saves(ranks: int = 2) -> Any:
    """The fault-free run: buckets are laid out anew in step 2, and step 5 saves by two votes."""
    told = baseline(ranks=ranks)
    gradient = ["all_reduce", "SUM", 500, "float32"]
    vote = ["all_gather", None, 8, "uint8"]
    steps: dict[int, dict[str, Any]] = {number: {"backward": [gradient]} for number in range(1, 13)}
    steps[0] = {"init": [["broadcast", None, 100, "float32"]]}
    steps[2] = {"forward": [["broadcast", None, 5, "int32"], ["broadcast", None, 1, "int32"]], **steps[2]}
    steps[5] |= {"save": [vote, vote]}
    return replace(told, collectives=dict.fromkeys(range(ranks), steps))


def rebuild(story: Story, odd: int, odd_sends: list[dict[str, Any]]) -> Story:
    """Up to DDP's new buckets in step 2, of which one rank sends something else; all end there."""
    story.updates(1, 1).step = 2
    for rank in range(story.plan.ranks):
        for sent in odd_sends if rank == odd else [HEAD, TAIL]:
            story.collective(rank, "broadcast", **sent)
    return story.cut_off()


def in_the_save(story: Story, odd: int, sent: list[tuple[str, dict[str, Any]]], *, others: int = 1) -> Story:
    ranks = story.plan.ranks
    story.updates(1, 1).step = 2
    for rank in range(ranks):
        story.collective(rank, "broadcast", **HEAD).collective(rank, "broadcast", **TAIL)
    story.updates(2, 5)
    for rank in range(ranks):
        for op, data in sent if rank == odd else [("all_gather", GATHER)] * others:
            story.collective(rank, op, **data)
    return story


SUM_OF_BYTES = ("all_reduce", GATHER | {"reduce_op": "SUM"})
VOTE = ("all_gather", GATHER)
BY_DUE: dict[str, tuple[Callable[[Story, int], Story], tuple[str, int, str]]] = {
    # name: (what happened with ``odd`` as the culprit, how, step, operation)
    "the first of two that come once in a job is left out": (
        lambda story, odd: rebuild(story, odd, [TAIL]),
        ("skipped", 2, "broadcast"),
    ),
    "one that comes once in a job is put in, and the peer gets no further": (
        lambda story, odd: rebuild(story, odd, [HEAD, TAIL, TAIL]),
        ("extra", 2, "broadcast"),
    ),
    "a sum is put in before the first vote of a save": (
        lambda story, odd: in_the_save(story, odd, [SUM_OF_BYTES]).cut_off(),
        ("mismatch", 5, "all_reduce against all_gather"),
    ),
    "a vote more than a save holds": (
        lambda story, odd: in_the_save(story, odd, [VOTE, VOTE, VOTE], others=2).cut_off(),
        ("extra", 5, "all_gather"),
    ),
}


@pytest.mark.parametrize("is_second_try", [False, True])
@pytest.mark.parametrize("odd", [0, 1])
@pytest.mark.parametrize("name", BY_DUE)
def test_what_was_due_tells_two_ranks_apart(name: str, odd: int, is_second_try: bool) -> None:
    told, (how, number, operation) = BY_DUE[name]
    history, check = told(begun(2, is_second_try), odd).history(1), GUARANTEES["CollectivesAgree"].check
    found = check(history, with_rebuild_and_saves())
    assert (found.outcome, found.rank, found.step, found.operation) == ("invalid", odd, number, operation), found
    assert found.seen["how"] == how
    for silent in (None, replace(with_rebuild_and_saves(), repeatable=False), baseline(collectives={})):
        assert check(history, silent).rank is None


def all_do_something_else() -> Story:
    story = begun(2).updates(1, 1)
    return story.collective(0, phase="eval", numel=1).collective(1, phase="eval", numel=1).cut_off()


def resumed_and_stopped() -> Story:
    story = run(ranks=2).start().updates(1, 1).kill(1).cut_off(0).start(load=1)
    story.step = 2
    for _ in range(3):
        story.collective(0, "broadcast", **HEAD)
    return story.cut_off()


NOT_BY_DUE = {
    "a save fails before its first vote": lambda: (
        in_the_save(begun(2), 1, []).raises(1, "OSError", "no space", phase="save").cut_off(0)
    ),
    "a save fails between its votes": lambda: (
        in_the_save(begun(3), 1, [VOTE], others=2).raises(1, "OSError", "no space", phase="save").cut_off(0, 2)
    ),
    "a rank is killed in a save": lambda: in_the_save(begun(4), 3, [], others=2).kill(3).cut_off(),
    "all ranks leave the order of the fault-free run together": all_do_something_else,
    "a resumed launch sends what the undisturbed one does not": resumed_and_stopped,
}


@pytest.mark.parametrize("name", NOT_BY_DUE)
def test_nobody_is_blamed_by_what_was_due(name: str) -> None:
    story = NOT_BY_DUE[name]()
    found = GUARANTEES["CollectivesAgree"].check(story.history(1), with_rebuild_and_saves(story.plan.ranks))
    assert found.outcome == "valid", found


@pytest.mark.parametrize("rank", [0, 1])
def test_a_call_of_another_type_in_a_step_unlike_all_others_is_told_by_the_fault_free_run(rank: int) -> None:
    """Buffers are sent in every forward pass; in that of step 2 DDP lays out its buckets first."""
    buffers = HEAD | {"numel": 192, "dtype": "float32"}
    story = run().start()
    for step in (1, 2, 3):
        story.step = step
        for each in (0, 1):
            laid_out = [HEAD, TAIL] if step == 2 else []
            for sent in [*laid_out, buffers]:
                is_odd = (each, step, sent) == (rank, 2, buffers)
                story.collective(each, "broadcast", **sent | ({"dtype": "float16"} if is_odd else {}))
        for each in (0, 1):
            story.collective(each).update(each, step)
    calls = [["broadcast", None, numel, dtype] for numel, dtype in ((5, "int32"), (1, "int32"), (192, "float32"))]
    gradient = ["all_reduce", "SUM", 500, "float32"]
    usual: dict[int, Any] = {
        step: {"forward": calls if step == 2 else calls[2:], "backward": [gradient]} for step in range(1, 4)
    }
    told = replace(baseline(), collectives=dict.fromkeys(range(2), usual))
    check = GUARANTEES["CollectivesAgree"].check
    found = check(story.history(1), told)
    assert (found.outcome, found.rank, found.step, found.operation) == ("invalid", rank, 2, "broadcast"), found
    assert check(story.history(1), None).rank is None
