"""Which faults changed nothing that training reads, as the records tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from harness._tests.histories import Story, baseline, run
from harness.allowed import allowed
from harness.faults import At, Fault
from harness.faults.corrupt_sample import CorruptSample
from harness.faults.nan_batch import NanBatch
from harness.faults.skip_backward import SkipBackward
from harness.history import Baseline
from harness.vanished import vanished
from harness.wire import Kind

SAMPLE = CorruptSample(rank=1, at=At(step=3))
UNTRIED = replace(baseline(), repeatable=None)


def fired(*faults: Fault) -> Story:
    """A job in which the batch of update 3 of rank 1 was damaged, and the update is as ever."""
    story = run(faults=faults).start().updates(1, 2)
    story.begin(0, 3).begin(1, 3)
    for index, _ in enumerate(faults):
        story.tell(1, Kind.FAULT, index=index, fault="corrupt_sample")
    return story.update(0, 3).update(1, 3).updates(4, 12).leave()


CASES: dict[str, tuple[Callable[[], Story], Baseline | None, set[int]]] = {
    "every rank's update is the fault-free run's": (lambda: fired(SAMPLE), baseline(), {0}),
    "a backward pass without targets was left out": (
        lambda: fired(SkipBackward(rank=1, at=At(step=3))),
        baseline(),
        {0},
    ),
    "one rank's is not": (
        lambda: fired(SAMPLE).edit(Kind.UPDATE, rank=0, restart=0, data={"params": "other"}, step=3),
        baseline(),
        set(),
    ),
    "it was never made": (lambda: fired(SAMPLE).drop(Kind.UPDATE, rank=0, step=3), baseline(), set()),
    "one rank's says nothing of the buffers": (
        lambda: fired(SAMPLE).without("buffers", Kind.UPDATE, rank=0, step=3),
        baseline(),
        set(),
    ),
    "its line does not say which fault it is": (lambda: fired(SAMPLE).without("index", Kind.FAULT), baseline(), set()),
    "it never fired": (lambda: run(faults=(SAMPLE,)).start().updates(1, 12).leave(), baseline(), set()),
    "of two the one that may be masked": (lambda: fired(NanBatch(rank=1, at=At(step=3)), SAMPLE), baseline(), {1}),
    "the fault-free run was not tried twice": (lambda: fired(SAMPLE), UNTRIED, set()),
    "there is no fault-free run": (lambda: fired(SAMPLE), None, set()),
}


@pytest.mark.parametrize("what", CASES)
def test_it_changed_nothing_if(what: str) -> None:
    tell, fault_free, indices = CASES[what]
    assert vanished(tell().history(), fault_free) == indices


def test_then_the_job_may_go_on_as_if_nothing_had_been() -> None:
    plan = fired(SAMPLE).plan
    assert {outcome.outcome for outcome in allowed(plan)} == {"detected"}
    assert {outcome.outcome for outcome in allowed(plan, {0})} == {"detected", "recovers"}
