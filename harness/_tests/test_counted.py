"""Between two ranks that start again the one that counts other calls than it sent is named, and must be."""

from __future__ import annotations

from typing import Any

import pytest

from harness._tests.histories import Story, run
from harness.allowed import allowed
from harness.checks import GUARANTEES
from harness.counted import counted
from harness.faults import At, Fault
from harness.faults.extra_collective import ExtraCollective
from harness.faults.kill import Kill
from harness.faults.skip_collective import SkipCollective
from harness.wire import Kind

KILL = Kill(rank=0, at=At(step=4, phase="backward"))
AT = At(step=6, collective=1, restart=1)


def restarted(fault: Fault) -> Story:
    """A second launch, from step 5, in its first update, which lays its buckets out as none before."""
    story = run(faults=[KILL, fault], expect="guaranteed", max_restarts=1).start().updates(1, 3)
    story.fire(0, 0, step=4).kill(0).cut_off()
    return story.start(load=5).collective(0, step=6, numel=300).fire(1, 1, step=6)


def count(calls: int, **more: int) -> dict[str, Any]:
    return {"world": {"calls": calls, "last": "all_reduce", **more}}


def skips(*, is_counted: bool) -> Story:
    """Rank 1 leaves the reduction of update 6 out, and its next call tells how many it came back from."""
    story = restarted(SkipCollective(rank=1, at=AT))
    told: dict[str, Any] = {"returned": count(2)} if is_counted else {}
    story.collective(1, step=6, numel=300, faulted="skipped").collective(1, step=6, numel=9, **told)
    return story.cut_off()


def puts_in(*, is_counted: bool) -> Story:
    """Rank 1 sends one more before it; in its last word it counts those that its script called for."""
    story = restarted(ExtraCollective(rank=1, numel=9, at=AT))
    story.collective(1, step=6, numel=9, faulted="extra").collective(1, step=6, numel=300)
    told: dict[str, Any] = {"returned": count(1, raised=1)} if is_counted else {}
    story.raises(1, "RuntimeError", "Connection closed by peer", in_collective=True, **told)
    return story.cut_off()


@pytest.mark.parametrize("tell", [skips, puts_in])
def test_its_own_count_tells_who_it_was_and_then_it_must_be_named(tell: Any) -> None:
    history = tell(is_counted=True).history(1)
    assert counted(history) == {1}
    found = GUARANTEES["CollectivesAgree"].check(history, None)
    assert (found.outcome, found.rank, found.step, found.restart) == ("invalid", 1, 6, 1), found
    assert found.seen["how"] == {skips: "skipped", puts_in: "extra"}[tell]
    (wanted,) = [each.broken for each in allowed(history.plan, counted=counted(history)) if each.broken]
    assert [(broken.guarantee, broken.rank, broken.step) for broken in wanted] == [("CollectivesAgree", 1, 6)]


@pytest.mark.parametrize("tell", [skips, puts_in])
def test_without_a_count_nobody_need_be(tell: Any) -> None:
    history = tell(is_counted=False).history(1)
    assert counted(history) == set()
    (wanted,) = [each.broken for each in allowed(history.plan, counted=counted(history)) if each.broken]
    assert [broken.rank for broken in wanted] == [None]


def test_a_record_with_damaged_lines_counts_nothing() -> None:
    story = skips(is_counted=True)
    story.damaged = ("rank-1/events-1.jsonl:3: torn",)
    assert counted(story.history(1)) == set()


def test_a_fault_that_is_no_matter_of_calls_is_not_asked_for() -> None:
    history = run(faults=[KILL], expect="guaranteed").start().updates(1, 3).fire(0, 0, step=4).kill(0).history(1)
    assert history.of(Kind.FAULT)
    assert counted(history) == set()
