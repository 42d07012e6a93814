"""The diagnosis and CulpritNamed: the first cause, never a victim, and never from an error's text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness._tests.histories import Story, run
from harness.checks import GUARANTEES
from harness.checks.diagnosis import diagnose
from harness.faults import Fault, load_fault
from harness.wire import Kind


def fault(kind: str, rank: Any = 1, **fields: Any) -> Fault:
    at = {"step": 4, "phase": "backward"} if kind != "short_loader" else {"epoch": 0}
    return load_fault({"kind": kind, "rank": rank, "at": at, **fields})


def fired(planned: Fault, ranks: int = 2, rank: int = 1) -> Story:
    return run(ranks=ranks, faults=[planned], expect="stops").start().updates(1, 3).begin(rank, 4).fire(rank)


def killed(code: int | None) -> Story:
    return fired(fault("kill")).kill(1, code=code).cut_off()


def segfault() -> Story:
    story = fired(fault("kill", signal="SIGSEGV"))
    return story.kill(1, code=None, fatal="Segmentation fault").cut_off()


def terminated_by_itself() -> Story:
    """The launcher saw rank 1 dead by SIGTERM, then ended rank 0: both wrote their stacks."""
    story = fired(fault("kill", signal="SIGTERM"))
    story.ended_by_launcher(1)
    story._reported(1, -15)
    return story.ended_by_launcher(0)


def raised(finally_waits: bool = False) -> Story:
    story = fired(fault("raise"))
    if finally_waits:  # its clean-up meets the gradients of the others
        story.collective(1, "barrier", numel=0, dtype=None, reduce_op=None, site="train.py:99")
        story.begin(0, 4)
    return story.raises(1, "InjectedFault", "injected by the scenario", phase="teardown").cut_off()


def victim_raises_first() -> Story:
    story = fired(fault("raise"), ranks=4)
    for rank in (0, 2, 3):
        story.raises(rank, "RuntimeError", "timeout: rank 3 is to blame", in_collective=True)
    return story.raises(1, "InjectedFault", "injected by the scenario")


def left_quietly() -> Story:
    return fired(fault("exit", code=0)).exits(1, 0).cut_off()


def left_without_a_word() -> Story:
    return fired(fault("exit", code=3)).kill(1, code=3).cut_off()


def skipped() -> Story:
    story = run(faults=[fault("skip_collective")], expect="stops").start().updates(1, 3)
    story.begin(0, 4).step = 4
    story.fire(1).collective(1, faulted="skipped").update(1, 4)
    story.begin(1, 5).update(0, 4).begin(0, 5).update(1, 5).update(0, 5)
    story.begin(1, 6).exits(1, 0)
    return story.cut_off()


def skipped_then_failing_by_itself() -> Story:
    """The skip shows in the next step, by an error that does not look as if it came out of communication."""
    story = run(faults=[fault("skip_collective")], expect="stops").start().updates(1, 3)
    story.begin(0, 4).fire(1).collective(1, faulted="skipped").update(1, 4)
    story.tell(1, Kind.BATCH, step=5, phase="load_batch", loader=0, epoch=0, index=4, ids=[1])
    story.step = 5
    story.collective(1, "broadcast", phase="forward", numel=5, root=0, reduce_op=None)
    return story.raises(1, "RuntimeError", "Connection closed by peer", phase="forward").cut_off()


def extra() -> Story:
    story = run(faults=[fault("extra_collective")], expect="stops").start().updates(1, 3)
    story.begin(0, 4).step = 4
    story.fire(1).collective(1, faulted="extra").collective(1).update(0, 4)
    story.update(1, 4).begin(0, 5).update(0, 5).exits(0, 0)
    return story.cut_off()


def mismatched() -> Story:
    story = run(faults=[fault("resize_collective", numel=7)], expect="stops").start().updates(1, 3)
    story.begin(0, 4).fire(1).collective(1, faulted="skipped").collective(1, numel=7, faulted="extra")
    return story.kill(1, code=-6, fatal="Aborted").cut_off()


def short_loader() -> Story:
    """Rank 1 runs out one batch early and goes on to the evaluation, whose all_reduce meets a gradient."""
    story = run(faults=[fault("short_loader")], expect="stops").start().fire(1, step=0, epoch=0, length=6)
    story.updates(1, 5).begin(0, 6)
    story.tell(1, Kind.LOADER_END, step=6, phase="load_batch", loader=0, epoch=0, batches=5)
    story.tell(1, Kind.PHASE, step=5, phase="eval")
    story.step = 5
    story.collective(1, phase="eval", numel=2)
    return story.kill(1, code=-6, fatal="Aborted").cut_off()


NAMED: dict[str, tuple[Callable[[], Story], str, int]] = {
    "SIGKILL, told by the agent": (lambda: killed(-9), "signal", 1),
    "SIGKILL, told by nobody": (lambda: killed(None), "signal", 1),
    "SIGSEGV, told by the stacks": (segfault, "signal", 1),
    "SIGTERM from elsewhere, while the launcher ends the others": (terminated_by_itself, "signal", 1),
    "an exception": (raised, "exception", 1),
    "an exception whose clean-up sends a collective": (lambda: raised(finally_waits=True), "exception", 1),
    "an exception that the victims' errors precede": (victim_raises_first, "exception", 1),
    "exit code 0 in the middle of the job": (left_quietly, "exit", 1),
    "os._exit that no record tells of": (left_without_a_word, "exit", 1),
    "a collective left out": (skipped, "skipped", 1),
    "a collective left out, and an error in the next step": (skipped_then_failing_by_itself, "skipped", 1),
    "a collective put in": (extra, "extra", 1),
    "a collective of another size, of which the rank dies": (mismatched, "mismatch", 1),
    "a shorter loader": (short_loader, "loader", 1),
}


@pytest.mark.parametrize("name", NAMED)
def test_the_first_cause_is_named(name: str) -> None:
    tell, how, rank = NAMED[name]
    history = tell().history(exit_code=1)
    (cause,) = diagnose(history)
    assert (cause.how, cause.rank, cause.step) == (how, rank, 6 if how == "loader" else 4), cause
    found = GUARANTEES["CulpritNamed"].check(history, None)
    assert found.outcome == "valid", found


def spoiled(kind: str, rank: int, step: int, **fields: Any) -> Story:
    """A fault on the values of rank 1 in step 4; a script looks at them in ``step``, on ``rank`` first."""
    story = run(faults=[fault(kind, **fields)], expect="stops").start().updates(1, 3)
    story.begin(0, 4).begin(1, 4).fire(1)
    for later in range(4, step):
        for each in (0, 1):
            story.update(each, later)
        for each in (0, 1):
            story.begin(each, later + 1)
    return story.raises(rank, "FloatingPointError", "the loss is nan").raises(1 - rank, "FloatingPointError", "nan")


@pytest.mark.parametrize("kind", ["nan_batch", "corrupt_sample", "flip_bit", "overflow"])
@pytest.mark.parametrize(("rank", "step"), [(1, 4), (0, 4), (0, 6)])
def test_values_that_spread_may_be_told_by_any_rank_and_later(kind: str, rank: int, step: int) -> None:
    found = GUARANTEES["CulpritNamed"].check(spoiled(kind, rank, step).history(exit_code=1), None)
    assert found.outcome == "valid", found


def test_an_error_before_the_values_were_spoiled_or_of_another_fault_is_not_theirs() -> None:
    story = (
        run(faults=[fault("nan_batch")], expect="stops").start().updates(1, 3).begin(0, 4).begin(1, 4).fire(1, step=5)
    )
    away = load_fault({"kind": "skip_save", "rank": 1, "at": {"step": 4}})
    other = run(faults=[away], expect="stops").start().updates(1, 3).begin(0, 4).begin(1, 4).fire(1, phase="save")
    for told in (story, other):
        found = GUARANTEES["CulpritNamed"].check(told.raises(0, "KeyError", "x").cut_off().history(exit_code=1), None)
        assert found.outcome == "invalid", found


def test_a_stall_is_told_by_the_rank_that_waits() -> None:
    story = run(faults=[fault("stalled_read", duration_s=9.0)], expect="stops").start().updates(1, 3)
    story.begin(0, 4).fire(1, step=4, phase="load_batch").passes(5.0)
    story.raises(0, "RuntimeError", "timeout", in_collective=True).cut_off()
    found = GUARANTEES["CulpritNamed"].check(story.history(exit_code=1), None)
    assert found.outcome == "valid", found


def test_a_rank_that_stays_away_from_the_last_save_leaves_before_the_others() -> None:
    away = load_fault({"kind": "skip_save", "rank": 1, "at": {"step": 8}})
    story = run(faults=[away], expect="stops").start().updates(1, 8).fire(1, step=8, phase="save")
    story.collective(0, "all_gather", phase="save", numel=8).exits(1, 0).cut_off()
    history = story.history(exit_code=1)
    (cause,) = diagnose(history)
    assert (cause.rank, cause.step) == (1, 8)
    found = GUARANTEES["CulpritNamed"].check(history, None)
    assert found.outcome == "valid", found


def wrong_rank() -> Story:
    """Rank 1 dies of itself before the fault on rank 0 shows."""
    story = run(faults=[fault("skip_collective", rank=0)], expect="stops").start().updates(1, 3)
    story.begin(1, 4).fire(0)
    return story.kill(1).cut_off()


def wrong_step() -> Story:
    """The fault fires in step 4, but the rank goes on and is killed in step 6."""
    return fired(fault("kill")).update(1, 4).begin(1, 5).update(1, 5).begin(1, 6).kill(1).cut_off()


def wrong_signal() -> Story:
    return fired(fault("kill", signal="SIGSEGV")).kill(1, code=-9).cut_off()


def wrong_kind() -> Story:
    return fired(fault("kill")).raises(1, "ValueError", "something else").cut_off()


def nobody_named() -> Story:
    """The fault fired, but both ranks only ever say that the other is gone."""
    return fired(fault("exit")).begin(0, 4).cut_off(0, 1)


MISTAKEN: dict[str, tuple[Callable[[], Story], str]] = {
    "another rank died": (wrong_rank, "rank 1 is named"),
    "it died in another step": (wrong_step, "step 6 is named"),
    "it died of another signal": (wrong_signal, "-9 is named"),
    "it died in another way": (wrong_kind, "exception"),
    "nobody can be named": (nobody_named, "no rank is named"),
}


@pytest.mark.parametrize("name", MISTAKEN)
def test_a_diagnosis_that_is_not_the_fault_is_invalid(name: str) -> None:
    tell, words = MISTAKEN[name]
    found = GUARANTEES["CulpritNamed"].check(tell().history(exit_code=1), None)
    assert found.outcome == "invalid", found
    assert words in found.reason


SPOILED = load_fault({"kind": "corrupt_sample", "rank": 0, "at": {"step": 2}})
KILLED = load_fault({"kind": "kill", "rank": 1, "at": {"step": 4, "phase": "backward"}})
ROGUE = load_fault({"kind": "skip_collective", "rank": 0, "at": {"step": 5, "collective": 1}})


@pytest.mark.parametrize(
    ("killed_rank", "outcome"),
    [
        pytest.param(1, "valid", id="the kill ended the launch that an earlier fault only spoiled"),
        pytest.param(0, "invalid", id="somebody else's end is neither of both"),
    ],
)
def test_of_several_faults_the_one_that_ended_the_launch_is_the_cause(killed_rank: int, outcome: str) -> None:
    story = run(ranks=2, faults=[SPOILED, KILLED], expect="stops").start().begin(0, 1)
    story.begin(1, 1).update(0, 1).update(1, 1).begin(0, 2).fire(0, index=0).begin(1, 2)
    story.update(0, 2).update(1, 2).updates(3, 3).begin(1, 4).fire(1, index=1)
    found = GUARANTEES["CulpritNamed"].check(story.kill(killed_rank).cut_off().history(exit_code=1), None)
    assert found.outcome == outcome, found


@pytest.mark.parametrize(("rank", "outcome"), [(0, "valid"), (1, "valid"), (None, "invalid")])
def test_a_rank_that_fails_of_itself_is_the_cause_also_beside_one_that_was_only_slow(
    rank: int | None, outcome: str
) -> None:
    """None: nobody failed of itself, and the rank that is found behind is not the one that was made slow."""
    slow = load_fault({"kind": "straggle", "rank": 1, "duration_s": 0.1, "at": {"step": 2, "phase": "forward"}})
    story = run(ranks=2, faults=[slow], expect="stops").start().updates(1, 1).fire(1, step=2).updates(2, 3)
    if rank is None:
        story.begin(1, 4).passes(5.0).cut_off(1).ended_by_launcher(0)
    else:
        story.begin(0, 4).begin(1, 4).raises(rank, "NameError", "a bug of the script's").cut_off()
    found = GUARANTEES["CulpritNamed"].check(story.history(exit_code=1), None)
    assert found.outcome == outcome, found


def test_a_fault_after_one_that_is_sure_to_end_the_launch_is_not_its_cause() -> None:
    story = run(ranks=2, faults=[KILLED, ROGUE], expect="stops").start().updates(1, 3).begin(1, 4).fire(1, index=0)
    story.begin(0, 4).fire(0, index=1)
    found = GUARANTEES["CulpritNamed"].check(story.kill(0).cut_off().history(exit_code=1), None)
    assert found.outcome == "invalid", found


@pytest.mark.parametrize("kind", [Kind.SAVE_ERROR, Kind.LOAD_ERROR])
def test_what_is_given_up_is_the_fault_of_the_rank_that_failed_not_of_the_first_that_says_so(kind: Kind) -> None:
    story = run(ranks=2, expect="stops").start().updates(1, 3)
    for rank in (1, 0):
        story.tell(rank, kind, step=3, phase="save", path="step-3", error="rank 0: InjectedFault", ranks=[0])
        story.raises(rank, "SaveFailed", "rank 0: InjectedFault: injected by the scenario", step=3, phase="save")
    (cause,) = diagnose(story.cut_off().history(exit_code=1))
    assert (cause.rank, cause.step, cause.how) == (0, 3, "exception")


def test_a_rank_that_is_ended_before_it_says_what_the_others_were_told_of_it_is_the_one() -> None:
    story = run(ranks=2, expect="stops").start().updates(1, 3)
    story.tell(1, Kind.SAVE_ERROR, step=3, phase="save", path="step-3", error="rank 0: InjectedFault", ranks=[0])
    story.raises(1, "SaveFailed", "rank 0: InjectedFault: injected by the scenario", step=3, phase="save")
    (cause,) = diagnose(story.ended_by_launcher(0).history(exit_code=1))
    assert (cause.rank, cause.step, cause.how) == (0, 3, "exception")
    assert cause.detail.endswith("(as rank 1 was told)")


def test_a_launch_that_had_nothing_left_to_do_and_fails_in_its_teardown_fails_at_the_step_that_it_loaded() -> None:
    story = run(ranks=2, expect="stops").start().load(0, 8).load(1, 8)
    story.tell(1, Kind.PHASE, step=8, phase="teardown").raises(1, "MemoryError", "no more", phase="teardown")
    (cause,) = diagnose(story.leave(0).history(exit_code=1))
    assert (cause.rank, cause.step, cause.phase, cause.how) == (1, 8, "teardown", "exception")


def test_in_the_teardown_the_step_that_was_begun_when_the_data_ended_is_the_faults_too() -> None:
    planned = load_fault({"kind": "out_of_memory", "rank": 1, "at": {"phase": "teardown"}})
    story = run(faults=[planned], expect="stops").start().updates(1, 4)
    story.tell(1, Kind.PHASE, step=5, phase="load_batch").tell(1, Kind.PHASE, phase="teardown")
    story.fire(1, phase="teardown").raises(1, "MemoryError", "no more", phase="teardown").leave(0)
    found = GUARANTEES["CulpritNamed"].check(story.history(exit_code=1), None)
    assert found.outcome == "valid", found


def test_without_faults_a_named_rank_is_enough() -> None:
    story = run().start().updates(1, 3).begin(1, 4).raises(1, "ValueError", "a bug of the script's").cut_off()
    found = GUARANTEES["CulpritNamed"].check(story.history(exit_code=1), None)
    assert found.outcome == "valid"
    assert "ValueError: a bug of the script's" in found.reason


def test_a_tie_that_no_fault_explains_is_unknown() -> None:
    story = run().start()
    story.collective(0, numel=100).collective(1, numel=200)
    story.kill(0, code=-6, fatal="Aborted").cut_off()
    assert GUARANTEES["CulpritNamed"].check(story.history(exit_code=1), None).outcome == "unknown"


def test_each_failed_launch_has_its_cause() -> None:
    faults = [fault("kill"), load_fault({"kind": "kill", "rank": 0, "at": {"phase": "load", "restart": 1}})]
    story = run(faults=faults, expect="recovers").start().updates(1, 3).begin(1, 4).fire(1).kill(1).cut_off()
    story.start().fire(0, 1, step=0, phase="load").kill(0).cut_off()
    history = story.start().updates(1, 6).leave().history()
    assert [(c.restart, c.rank, c.phase) for c in diagnose(history)] == [(0, 1, "backward"), (1, 0, "load")]
    assert GUARANTEES["CulpritNamed"].check(history, None).outcome == "valid"
