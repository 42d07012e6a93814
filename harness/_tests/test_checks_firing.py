"""FaultFired, SteadyBefore, EndsInTime, NothingLeft: does the run mean anything?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness._tests.histories import Story, run
from harness.checks import GUARANTEES
from harness.faults import At, Fault, load_fault
from harness.faults.kill import Kill
from harness.faults.out_of_memory import OutOfMemory
from harness.faults.raise_ import Raise
from harness.wire import Kind

Tell = Callable[[], Story]
STEP_4 = Kill(rank=1, at=At(step=4, phase="backward"))


def verdict(name: str, story: Story, exit_code: int = 0, **outcome: Any) -> Any:
    return GUARANTEES[name].check(story.history(exit_code, **outcome), None)


def planned(*faults: Fault, ranks: int = 2, **plan: Any) -> Story:
    return run(ranks=ranks, faults=faults, expect="recovers", **plan).start()


def killed_at(story: Story, step: int, rank: int = 1, index: int = 0, **fire: Any) -> Story:
    return story.updates(1, step - 1).begin(rank, step).fire(rank, index, **fire).kill(rank).cut_off()


# -- FaultFired ----------------------------------------------------------------------------------------------------


def test_fired_as_planned() -> None:
    assert verdict("FaultFired", killed_at(planned(STEP_4), 4).start().updates(1, 6)).outcome == "valid"


def test_fired_on_every_target_and_in_recovery() -> None:
    faults = (Kill(rank="all", at=At(step=3)), Kill(rank=0, at=At(phase="load", restart=1)))
    story = planned(*faults).updates(1, 2).fire(0, step=3).fire(1, step=3).kill(0).kill(1)
    story.start().fire(0, 1, phase="load").kill(0).cut_off()
    found = verdict("FaultFired", story.start().updates(1, 6))
    assert (found.outcome, found.reason) == ("valid", "3 firings as planned")


UNFIRED: dict[str, tuple[Tell, str, int, int]] = {
    "the job ended before": (lambda: planned(STEP_4).updates(1, 3).leave(), "did not fire", 1, 4),
    "no rank has such a phase": (
        lambda: planned(Kill(rank=1, at=At(step=4, phase="eval"))).updates(1, 6).leave(),
        "no rank came to phase eval; rank 1 came to init, ",
        1,
        4,
    ),
    "another rank alone has such a phase": (
        lambda: planned(Kill(rank=1, at=At(step=4, phase="save"))).updates(1, 4).tell(0, Kind.PHASE, phase="save"),
        "rank 0 alone came to phase save; rank 1 came to init, ",
        1,
        4,
    ),
    "it fired on one of two targets": (
        lambda: killed_at(planned(Kill(rank="all", at=At(step=4))), 4),
        "did not fire",
        0,
        4,
    ),
    "it fired in another step": (lambda: killed_at(planned(STEP_4), 3), "fired at step 3", 1, 3),
    "it fired in another phase": (
        lambda: killed_at(planned(STEP_4), 4, phase="forward"),
        "fired at phase forward",
        1,
        4,
    ),
    "there was no such restart": (
        lambda: planned(Kill(rank=1, at=At(step=4, restart=1))).updates(1, 6).leave(),
        "no restart 1",
        1,
        4,
    ),
    "it changed nothing": (
        lambda: planned(STEP_4).updates(1, 3).begin(1, 4).fire(1).update(1, 4).leave(),
        "went on after kill",
        1,
        4,
    ),
}


@pytest.mark.parametrize("at", [At(step=3), At(failpoint="ckpt.load.agree:after")], ids=["ends it", "may be survived"])
@pytest.mark.parametrize(("ended", "outcome"), [([0], "valid"), ([], "unknown"), ([0, 1], "unknown")])
def test_a_target_that_was_ended_for_what_another_did_first_need_not_have_done_it(
    ended: list[int], outcome: str, at: At
) -> None:
    """All ranks begin to run out of memory; one of them is there first."""
    story = planned(OutOfMemory(rank="all", at=at), ranks=2).updates(1, 2)
    for rank in (0, 1):
        story.begin(rank, 3).fire(rank)
    if 1 not in ended:
        story.raises(1, "MemoryError", "no more")
    if ended:
        story.ended_by_launcher(*ended)
    else:
        story.kill(0)
    assert verdict("FaultFired", story, 1).outcome == outcome


@pytest.mark.parametrize(("blamed", "words", "outcome"), [
    ([0], "rank 0: InjectedFault: injected by the scenario", "valid"),
    ([0], "rank 0: OSError: no space is left", "unknown"),
    ([1], "rank 1: InjectedFault: injected by the scenario", "unknown"),
])  # fmt: skip
def test_what_came_of_a_save_may_be_told_by_the_others_of_a_rank_that_was_ended(
    blamed: list[int], words: str, outcome: str
) -> None:
    story = planned(Raise(rank=0, at=At(failpoint="ckpt.manifest.rename:before")), ranks=2).updates(1, 5)
    story.fire(0, phase="save").collective(0, "all_gather", phase="save", numel=9)
    story.tell(1, Kind.SAVE_ERROR, phase="save", path="/run/checkpoints/step-5", error=words, ranks=blamed)
    story.raises(1, "SaveFailed", words, phase="save").ended_by_launcher(0)
    assert verdict("FaultFired", story, 1).outcome == outcome


def test_a_target_that_went_on_and_was_ended_later_has_not_done_it() -> None:
    story = planned(OutOfMemory(rank="all", at=At(failpoint="ckpt.load.agree:after")), ranks=2).updates(1, 2)
    for rank in (0, 1):
        story.begin(rank, 3).fire(rank)
    story.update(0, 3).raises(1, "MemoryError", "no more").ended_by_launcher(0)
    assert verdict("FaultFired", story, 1).outcome == "unknown"


@pytest.mark.parametrize("name", UNFIRED)
def test_a_fault_that_did_not_fire_as_planned_is_unknown(name: str) -> None:
    story, words, rank, step = UNFIRED[name]
    found = verdict("FaultFired", story())
    assert (found.outcome, found.rank, found.step) == ("unknown", rank, step), found
    assert words in found.reason


def test_disarmed_is_unknown_even_without_a_fault() -> None:
    assert verdict("FaultFired", planned(STEP_4, disarmed=True).updates(1, 6).leave()).outcome == "unknown"
    assert verdict("FaultFired", planned(disarmed=True).updates(1, 6).leave()).outcome == "unknown"


def test_no_fault_planned() -> None:
    assert verdict("FaultFired", planned().updates(1, 6).leave()).outcome == "not-applicable"


# -- SteadyBefore --------------------------------------------------------------------------------------------------


def other_rank_is_still_at_its_update() -> Story:
    """Rank 1 enters step 4 while rank 0 has not recorded its update 3 yet."""
    story = planned(STEP_4).updates(1, 2).begin(0, 3).begin(1, 3).update(1, 3)
    return story.begin(1, 4).fire(1).kill(1).cut_off()


STEADY: dict[str, Tell] = {
    "three updates before the fourth": lambda: killed_at(planned(STEP_4), 4),
    "the other rank is still at its update": other_rank_is_still_at_its_update,
    "the fault is in the save after update 5": lambda: (
        planned(Kill(rank=0, at=At(step=5, phase="save"))).updates(1, 5).fire(0, phase="save").kill(0)
    ),
    "the fault is planned at init": lambda: planned(Kill(rank=1, at=At(phase="init"))).fire(1, phase="init").kill(1),
    "the fault is planned in the first step": lambda: killed_at(planned(Kill(rank=1, at=At(step=1))), 1),
    "the fault is in the first launch of a job that resumed": lambda: (
        run(faults=[STEP_4], expect="recovers").start(load=8).updates(9, 10).begin(1, 11).fire(1).kill(1).cut_off()
    ),
}


@pytest.mark.parametrize("name", STEADY)
def test_work_was_done_before(name: str) -> None:
    found = verdict("SteadyBefore", STEADY[name]())
    assert found.outcome == "valid", found


def test_no_work_before_a_fault_in_the_fourth_step() -> None:
    story = planned(STEP_4).begin(1, 4).fire(1).kill(1).cut_off()
    found = verdict("SteadyBefore", story)
    assert (found.outcome, found.rank, found.step) == ("invalid", 1, 1), found


def test_an_update_of_another_rank_is_missing() -> None:
    found = verdict("SteadyBefore", killed_at(planned(STEP_4, ranks=3), 4).drop(Kind.UPDATE, rank=2, step=2))
    assert (found.outcome, found.rank, found.step) == ("invalid", 2, 2), found


def test_unfired_is_unknown_and_unplanned_does_not_apply() -> None:
    assert verdict("SteadyBefore", planned(STEP_4).updates(1, 3).leave()).outcome == "unknown"
    assert verdict("SteadyBefore", planned().updates(1, 3).leave()).outcome == "not-applicable"


def test_a_shorter_loader_of_a_later_epoch_needs_the_first() -> None:
    fault = load_fault({"kind": "short_loader", "rank": 1, "at": {"epoch": 1}})
    story = planned(fault).updates(1, 6).fire(1, step=7, phase="load_batch", epoch=1, length=6)
    assert verdict("SteadyBefore", story).outcome == "valid"
    empty = planned(fault).fire(1, step=7, phase="load_batch", epoch=1, length=6)
    assert verdict("SteadyBefore", empty).outcome == "invalid"


# -- EndsInTime, NothingLeft ---------------------------------------------------------------------------------------


def test_a_hang_names_who_is_behind() -> None:
    story = planned(ranks=3).updates(1, 3).begin(0, 4).begin(2, 4)
    found = verdict("EndsInTime", story, timed_out=True)
    assert (found.outcome, found.rank, found.step, found.operation) == ("invalid", 1, 4, "all_reduce")
    assert found.seen["ahead"] == [0, 2]
    assert found.seen["behind"] == [1]
    assert "behind: rank 1" in found.reason


def test_a_rank_that_never_came_is_absent() -> None:
    story = planned(ranks=3).updates(1, 1)
    story.events = [e for e in story.events if not (e["rank"] == 2 and e["kind"] == Kind.COLLECTIVE)]
    found = verdict("EndsInTime", story, timed_out=True)
    assert (found.outcome, found.rank, found.seen["absent"]) == ("invalid", 2, [2])


def test_one_ahead_of_many_is_the_odd_one_where_nothing_tells_what_the_others_do() -> None:
    found = verdict("EndsInTime", planned(ranks=4).updates(1, 3).begin(3, 4), timed_out=True)
    assert (found.outcome, found.rank) == ("invalid", 3)
    assert (found.seen["ahead"], found.seen["behind"]) == ([3], [0, 1, 2])


def test_two_against_two_names_nobody() -> None:
    found = verdict("EndsInTime", planned(ranks=4).updates(1, 3).begin(0, 4).begin(3, 4), timed_out=True)
    assert (found.outcome, found.rank) == ("invalid", None)
    assert (found.seen["ahead"], found.seen["behind"]) == ([0, 3], [1, 2])
    assert found.seen["ranks 1, 2"].endswith("no evidence: no stacks")


def test_a_run_that_fails_in_time_ended_in_time() -> None:
    assert verdict("EndsInTime", killed_at(planned(STEP_4), 4), exit_code=1).outcome == "valid"
    assert verdict("EndsInTime", planned().updates(1, 4).leave()).outcome == "valid"


@pytest.mark.parametrize("left", ["process 4711 (python) still ran 1.0 s after the agent had ended", "port 1 is open"])
def test_something_is_left(left: str) -> None:
    found = verdict("NothingLeft", planned().updates(1, 4).leave(), leftovers=(left,))
    assert found.outcome == "invalid"
    assert left in found.reason


def test_nothing_is_left() -> None:
    assert verdict("NothingLeft", planned().updates(1, 4).leave()).outcome == "valid"
    assert verdict("NothingLeft", planned().updates(1, 4), timed_out=True).outcome == "valid"


GLOO = ["gloo_tcp_loop", "pt_gloo_runloop", "pt_tcpstore_uv"]


@pytest.mark.parametrize(
    ("threads", "exit_data", "outcome"),
    [
        pytest.param(GLOO, {}, "invalid", id="gloo's threads outlive destroy_process_group"),
        pytest.param(["pt_tcpstore_uv"], {}, "valid", id="the store's thread is no danger"),
        pytest.param(GLOO, {"at_once": True}, "valid", id="os._exit leaves no interpreter to abort"),
        pytest.param(GLOO, {"torn_down": True}, "invalid", id="and the record says that it came back"),
        pytest.param(GLOO, {"torn_down": False}, "valid", id="a rank that left on its way there has destroyed none"),
        pytest.param(GLOO, {"code": 1}, "valid", id="a script that failed is another matter"),
    ],
)
def test_threads_of_a_destroyed_process_group(threads: list[str], exit_data: dict[str, Any], outcome: str) -> None:
    story = planned().updates(1, 4).leave().edit(Kind.EXIT, rank=1, data={"threads": threads, **exit_data})
    found = verdict("NothingLeft", story)
    assert found.outcome == outcome
    if outcome == "invalid":
        assert (found.rank, found.step, found.operation) == (1, 4, "destroy_process_group")
        assert found.seen["threads"] == ["gloo_tcp_loop", "pt_gloo_runloop"]


def test_a_group_that_was_never_destroyed_has_its_threads() -> None:
    story = planned().updates(1, 4)
    for rank in (0, 1):
        story.tell(rank, Kind.EXIT, phase="optimizer_step", code=0, threads=GLOO)
    assert verdict("NothingLeft", story).outcome == "valid"


def test_a_run_that_was_ended_from_outside_was_not_swept() -> None:
    history = planned().updates(1, 4).history(None)
    assert GUARANTEES["NothingLeft"].check(history, None).outcome == "unknown"
