"""The diagnosis of ranks that were told to end, or had come to their end: for whom a launch ended that nobody hit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness._tests.histories import Story, run
from harness._tests.test_checks_culprit import fault, fired
from harness.checks import GUARANTEES
from harness.checks.diagnosis import diagnose
from harness.wire import Kind


def told_to_end(last: Callable[[Story], Story], **fields: Any) -> Story:
    return last(fired(fault("kill", signal="SIGTERM", grace_s=5.0, **fields))).cut_off()


GRACE: dict[str, tuple[Callable[[], Story], str]] = {
    "a rank that saves and leaves": (lambda: told_to_end(lambda s: s.exits(1, 143)), "valid"),
    "a rank that is killed some updates later": (
        lambda: told_to_end(lambda s: s.begin(0, 4).update(0, 4).update(1, 4).begin(1, 5).kill(1)), "valid"),
    "a rank that dies of it at once": (lambda: told_to_end(lambda s: s.kill(1, code=-15)), "valid"),
    "the rank that was not told": (lambda: told_to_end(lambda s: s.exits(0, 143)), "invalid"),
}  # fmt: skip


@pytest.mark.parametrize(("tell", "outcome"), GRACE.values(), ids=GRACE)
def test_a_rank_with_a_grace_period_ends_in_its_own_way_and_time(tell: Callable[[], Story], outcome: str) -> None:
    found = GUARANTEES["CulpritNamed"].check(tell().history(exit_code=1), None)
    assert found.outcome == outcome, found


def test_ranks_ended_on_the_deadline_did_not_die_of_themselves() -> None:
    (cause,) = diagnose(run().start().updates(1, 3).begin(0, 4).history(timed_out=True))
    assert (cause.how, cause.rank) == ("hang", 1)


def test_an_abort_after_the_script_was_done_is_teardown() -> None:
    story = run().start().updates(1, 3).leave()
    story.stacks[1, 0] = "Fatal Python error: Aborted\n"
    (cause,) = diagnose(story.history(exit_code=1))
    assert (cause.rank, cause.phase, cause.how) == (1, "teardown", "signal")


def test_a_job_that_was_told_to_stop_and_left_well_has_nobody_to_blame() -> None:
    """Torchrun's exit code is 1 then, even if every rank has saved and left with 0."""
    history = run(expect="stops").start().updates(1, 4).leave().history(1)
    (cause,) = diagnose(history)
    assert (cause.how, cause.rank, cause.step, cause.exit_code) == ("stopped", None, 4, 1)
    assert GUARANTEES["CulpritNamed"].check(history, None).outcome == "valid"


def test_a_rank_that_the_launcher_saw_failing_was_not_told_to_stop() -> None:
    story = run(expect="stops").start().updates(1, 4).leave()
    story._reported(1, 1)
    assert [cause.how for cause in diagnose(story.history(1))] != ["stopped"]


def test_the_launcher_itself_was_killed() -> None:
    (cause,) = diagnose(run().start().updates(1, 3).history(exit_code=-9))
    assert (cause.rank, cause.how) == (None, "signal")
    assert "launcher" in cause.detail


def test_a_job_that_ends_well_has_no_culprit() -> None:
    history = run().start().updates(1, 3).leave().history()
    assert diagnose(history) == []
    assert GUARANTEES["CulpritNamed"].check(history, None).outcome == "not-applicable"


def ended_on_its_way_out(*, last_phase: str, sends_less: bool) -> Story:
    """Rank 0 fails in update 5, and rank 1 is ended by the launcher in its teardown, its end not yet on record."""
    story = run().start().updates(1, 4).begin(0, 5)
    if not sends_less:
        story.begin(1, 5)
    story.tell(1, Kind.PHASE, step=4, phase=last_phase)
    story.tell(1, Kind.PHASE, step=4, phase="teardown")
    return story.cut_off(0).ended_by_launcher(1)


LEAVING: dict[str, tuple[Callable[[], Story], int | None]] = {
    "it had made its last update": (lambda: ended_on_its_way_out(last_phase="save", sends_less=True), 1),
    "it unwinds": (lambda: ended_on_its_way_out(last_phase="backward", sends_less=True), None),
    "it has sent as much as the others": (lambda: ended_on_its_way_out(last_phase="save", sends_less=False), None),
}


@pytest.mark.parametrize("name", LEAVING)
def test_a_rank_that_is_ended_in_its_teardown_had_left_if(name: str) -> None:
    tell, rank = LEAVING[name]
    history = tell().history(exit_code=1)
    (cause,) = diagnose(history)
    assert (cause.rank if cause.how == "exit" else None) == rank, cause
    found = GUARANTEES["CollectivesAgree"].check(history, None)
    assert (found.outcome, found.rank, found.step) == (("invalid", 1, 5) if rank else ("valid", None, None)), found
