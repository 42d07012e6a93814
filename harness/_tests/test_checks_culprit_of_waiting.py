"""The diagnosis and CulpritNamed where ranks wait: one hangs, one never came, or connections are lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness._tests.histories import Story, run
from harness.checks import GUARANTEES
from harness.checks.diagnosis import diagnose
from harness.faults import load_fault
from harness.wire import Kind


def test_ranks_that_never_came_together_name_nobody_but_say_what_was_said() -> None:
    story = run(ranks=2, expect="stops").start().passes(5.0)
    story.raises(0, "RuntimeError", "no mesh\nmore", in_collective=True, phase="init").ended_by_launcher(1)
    (cause,) = diagnose(story.history(1))
    assert (cause.how, cause.rank) == ("hang", None)
    assert cause.detail.endswith("the first to give up is rank 0, RuntimeError: no mesh")


def test_a_hang_names_the_one_that_is_behind_also_if_it_comes_late() -> None:
    """A straggler reaches the collective after the others gave up, and then reads that they are gone."""
    story = run(ranks=3).start().updates(1, 3).begin(0, 4).begin(2, 4)
    story.passes(5.0).cut_off(0, 2).begin(1, 4).cut_off(1)
    (cause,) = diagnose(story.history(exit_code=1))
    assert (cause.how, cause.rank, cause.step, cause.operation) == ("hang", 1, 4, "all_reduce")


def test_a_rank_that_hangs_in_an_update_is_named_with_it_where_the_others_are_in_the_next() -> None:
    planned = load_fault({"kind": "hang", "rank": 1, "at": {"step": 3, "phase": "optimizer_step"}})
    story = run(faults=[planned], expect="stops").start().updates(1, 2).begin(0, 3).begin(1, 3)
    story.update(0, 3).fire(1, step=3, phase="optimizer_step").begin(0, 4).passes(5.0).cut_off(0).ended_by_launcher(1)
    history = story.history(exit_code=1)
    (cause,) = diagnose(history)
    assert (cause.how, cause.rank, cause.step, cause.phase) == ("hang", 1, 3, "optimizer_step")
    assert GUARANTEES["CulpritNamed"].check(history, None).outcome == "valid"


def test_connections_that_are_lost_are_no_hang_and_nobody_is_named() -> None:
    """No rank died, and none waited long: that one of them had sent less by then is chance."""
    story = run(ranks=3, expect="stops").start().updates(1, 3).begin(0, 4).begin(2, 4)
    history = story.cut_off(0, 2).ended_by_launcher(1).history(exit_code=1)
    (cause,) = diagnose(history)
    assert (cause.how, cause.rank, cause.step, cause.operation) == ("disconnected", None, 4, "all_reduce")
    assert GUARANTEES["CulpritNamed"].check(history, None).outcome == "unknown"


def test_a_call_that_waited_was_not_cut_off_though_the_scenarios_timeout_is_longer() -> None:
    """A script may bound its wait() or its barrier itself."""
    story = run(collective_timeout_s=30.0, expect="stops").start().updates(1, 3).begin(0, 4).passes(4.0)
    (cause,) = diagnose(story.cut_off(0).ended_by_launcher(1).history(exit_code=1))
    assert (cause.how, cause.rank) == ("hang", 1)


ANSWERS: dict[str, tuple[str, int, bool]] = {
    # name: (type, step of the rank that says so first, in_collective)
    "as it came": ("RuntimeError", 4, True),
    "wrapped by the script": ("TrainingFailed", 4, False),
    "in the next update": ("TrainingFailed", 5, False),
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("first", [0, 1])
def test_however_a_script_answers_lost_connections_they_are_the_cause(name: str, first: int) -> None:
    kind, step, in_collective = ANSWERS[name]
    planned = load_fault({"kind": "abort_group", "rank": 1, "at": {"step": 4, "collective": 1}})
    story = run(faults=[planned], expect="stops").start().updates(1, 3).begin(0, 4).begin(1, 4).fire(1)
    if step == 5:
        story.update(first, 4).begin(first, 5)
    story.raises(first, kind, "Connection closed by peer", in_collective=in_collective).cut_off()
    assert GUARANTEES["CulpritNamed"].check(story.history(exit_code=1), None).outcome == "valid"


def test_a_rank_that_gives_up_a_save_after_its_timeout_has_lost_no_connection() -> None:
    """What the store says of it comes right before the exception, and seconds after the call."""
    story = run(expect="stops").start().updates(1, 3).collective(0, "all_gather", phase="save", numel=8).passes(5.0)
    story.tell(0, Kind.SAVE_ERROR, phase="save", path="step-3", error="RuntimeError", ranks=[])
    (cause,) = diagnose(story.cut_off(0).ended_by_launcher(1).history(exit_code=1))
    assert (cause.how, cause.rank) == ("hang", 1)


def hung_in_backward(on: set[int]) -> Story:
    """Of four ranks these do not come to the collective of update 4, and are ended by the launcher."""
    planned = load_fault({"kind": "hang", "rank": [1, 2], "at": {"step": 4, "phase": "backward"}})
    story = run(ranks=4, faults=[planned], expect="stops").start().updates(1, 3)
    for rank in (1, 2):
        story.fire(rank, step=4)
    for rank in sorted({0, 1, 2, 3} - on):
        story.begin(rank, 4)
    return story.passes(5.0).cut_off(0, 3).ended_by_launcher(1, 2)


def test_several_ranks_that_hang_are_all_named() -> None:
    history = hung_in_backward({1, 2}).history(exit_code=1)
    (cause,) = diagnose(history)
    assert (cause.rank, cause.named, cause.step, cause.how) == (None, (1, 2), 4, "hang")
    assert GUARANTEES["CulpritNamed"].check(history, None).outcome == "valid"


def test_a_rank_that_hangs_and_is_no_target_is_not_passed_over_among_several() -> None:
    found = GUARANTEES["CulpritNamed"].check(hung_in_backward({1, 2, 3}).history(exit_code=1), None)
    assert found.outcome == "invalid", found


def entering(ranks: int, *entered: int, came_back: tuple[int, ...] = ()) -> Story:
    """Ranks at ``init_process_group``; none has come to a collective."""
    story = run(ranks=ranks, expect="stops")
    story.alive = set(range(ranks))
    for rank in range(ranks):
        story.tell(rank, Kind.START, pid=story.pid(rank), local_rank=rank, world_size=ranks)
    for rank in entered:
        story.tell(rank, Kind.RENDEZVOUS_START)
    for rank in came_back:
        story.tell(rank, Kind.RENDEZVOUS_END)
    return story


def too_late() -> Story:
    """Rank 1 enters when rank 0 has given up, and finds nobody."""
    return entering(2, 0).cut_off(0).tell(1, Kind.RENDEZVOUS_START).cut_off(1)


RENDEZVOUS: dict[str, tuple[Callable[[], Story], int | None, str]] = {
    "one of two never comes": (
        lambda: entering(2, 0).cut_off(0).ended_by_launcher(1),
        1,
        "rank 1 never entered init_process_group, in which rank 0 waited",
    ),
    "rank 0 of three never comes": (
        lambda: entering(3, 1, 2).cut_off(1, 2).ended_by_launcher(0),
        0,
        "rank 0 never entered init_process_group, in which ranks 1, 2 waited",
    ),
    "one comes when the other has given up": (too_late, 1, "rank 1 never entered init_process_group"),
    "two of three never come": (
        lambda: entering(3, 0).cut_off(0).ended_by_launcher(1, 2),
        None,
        "ranks 1, 2 never entered init_process_group",
    ),
    "all came, and could not connect": (
        lambda: entering(2, 0, 1).cut_off(),
        None,
        "ranks 0, 1 entered init_process_group and never came back",
    ),
    "one that gave up is not the one it waited for": (
        lambda: entering(2, 0, 1, came_back=(0,)).cut_off(1).ended_by_launcher(0),
        None,
        "rank 1 entered init_process_group and never came back",
    ),
}


@pytest.mark.parametrize("name", RENDEZVOUS)
def test_a_failed_rendezvous_names_who_was_not_there(name: str) -> None:
    tell, rank, words = RENDEZVOUS[name]
    (cause,) = diagnose(tell().history(1))
    assert (cause.how, cause.rank, cause.operation) == ("hang", rank, "init_process_group"), cause
    assert words in cause.detail


def test_a_rank_stuck_in_the_rendezvous_that_the_others_left_is_named_on_the_deadline() -> None:
    history = entering(3, 0, 1, 2, came_back=(0, 2)).history(timed_out=True)
    (cause,) = diagnose(history)
    assert (cause.how, cause.rank) == ("hang", 1), cause
    found = GUARANTEES["EndsInTime"].check(history, None)
    assert (found.outcome, found.rank, found.operation) == ("invalid", 1, "init_process_group"), found


def test_a_rank_that_dies_before_the_rendezvous_is_named_by_its_own_end() -> None:
    story = entering(2, 0).raises(1, "FileNotFoundError", "no data", phase="init").cut_off(0)
    (cause,) = diagnose(story.history(1))
    assert (cause.how, cause.rank) == ("exception", 1), cause
