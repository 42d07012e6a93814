"""What the fault-free run tells beside its steps: in restarts, at the start of a job, and once a rank is dead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from harness._tests.histories import Story, baseline, run
from harness.checks import GUARANTEES
from harness.checks.diagnosis import diagnose
from harness.history import Baseline

SIZES: dict[str, Any] = {"phase": "load", "numel": 4, "dtype": "int64", "root": 0, "reduce_op": None}
WEIGHTS: dict[str, Any] = SIZES | {"numel": 500, "dtype": "float32"}
CHOICE: dict[str, Any] = SIZES | {"numel": 1, "dtype": "int32"}  # which checkpoint it is: only a resumed job sends it


def told() -> Baseline:
    """Each launch spreads its first weights by two broadcasts, in the phase ``load``."""
    start = {
        "init": [["broadcast", None, 100, "float32"]],
        "load": [["broadcast", None, 4, "int64"], ["broadcast", None, 500, "float32"]],
    }
    base = baseline()
    return replace(base, collectives={rank: {0: start, **steps} for rank, steps in base.collectives.items()})


def started(story: Story, odd: int, odd_sends: list[dict[str, Any]], others: list[dict[str, Any]]) -> Story:
    """The broadcasts of a start, of which one rank sends something else."""
    for rank in sorted(story.alive):
        for sent in odd_sends if rank == odd else others:
            story.collective(rank, "broadcast", **sent)
    return story


def resumed() -> Story:
    story = started(run().start(), 1, [SIZES, WEIGHTS], [SIZES, WEIGHTS])
    return story.updates(1, 3).begin(1, 4).kill(1).cut_off().start(load=3)


START: dict[str, tuple[Callable[[int], Story], str]] = {
    "the first of two broadcasts, in a restart": (
        lambda odd: started(resumed(), odd, [WEIGHTS], [SIZES]).cut_off(),
        "broadcast",
    ),
    "the last one before the gradients, in a restart": (
        lambda odd: started(resumed(), odd, [SIZES], [SIZES, WEIGHTS]).begin(odd, 4).cut_off(),
        "broadcast",
    ),
    "the first of two broadcasts of a job": (
        lambda odd: started(run().start(), odd, [WEIGHTS], [SIZES]).cut_off(),
        "broadcast",
    ),
    "the last one before the gradients of a job": (
        lambda odd: started(run().start(), odd, [SIZES], [SIZES, WEIGHTS]).begin(odd, 1).cut_off(),
        "broadcast",
    ),
}


@pytest.mark.parametrize("odd", [0, 1])
@pytest.mark.parametrize("name", START)
def test_what_is_left_out_at_a_start_is_named(name: str, odd: int) -> None:
    tell, operation = START[name]
    history = tell(odd).history(1)
    found = GUARANTEES["CollectivesAgree"].check(history, told())
    assert (found.outcome, found.rank, found.operation) == ("invalid", odd, operation), found
    assert found.seen["how"] == "skipped"
    cause = diagnose(history, told())[-1]
    assert (cause.how, cause.rank, cause.phase) == ("skipped", odd, "load"), cause


@pytest.mark.parametrize("odd", [0, 1])
def test_what_only_a_restart_sends_is_held_against_nobody(odd: int) -> None:
    """Whether one rank put it in or the other left it out, a run that never restarted cannot tell."""
    story = started(resumed(), odd, [CHOICE], [SIZES]).cut_off()
    found = GUARANTEES["CollectivesAgree"].check(story.history(1), told())
    assert (found.outcome, found.rank) == ("invalid", None), found


def cleans_up(*, sent_both: bool) -> Story:
    """Rank 1 is killed; rank 0 hears of it in the gradients, and its ``finally`` waits for rank 1 once more."""
    story = started(run().start(), 1, [SIZES, WEIGHTS], [SIZES, WEIGHTS]).updates(1, 3).begin(0, 4)
    if sent_both:
        story.begin(1, 4)
    story.kill(1).collective(0, "barrier", numel=0, dtype=None, reduce_op=None, site="train.py:99").cut_off()
    return story.start().updates(1, 6).leave()


@pytest.mark.parametrize("sent_both", [False, True])
def test_the_clean_up_of_a_survivor_is_no_deviation(sent_both: bool) -> None:
    found = GUARANTEES["CollectivesAgree"].check(cleans_up(sent_both=sent_both).history(), told())
    assert found.outcome == "valid", found


def aborts(rank: int, *, in_the_call: bool) -> Story:
    """The other rank leaves out SIZES, its WEIGHTS do not fit, and ``rank``, which waits for SIZES, aborts."""
    story = run().start()
    if in_the_call:
        story.collective(rank, "broadcast", **SIZES)
    story.collective(1 - rank, "broadcast", **WEIGHTS)
    return story.kill(rank, code=-6, fatal="Aborted").cut_off()


@pytest.mark.parametrize("rank", [0, 1])
def test_an_abort_inside_the_call_that_does_not_fit_is_a_consequence(rank: int) -> None:
    (cause,) = diagnose(aborts(rank, in_the_call=True).history(1), told())
    assert (cause.how, cause.rank, cause.operation) == ("skipped", 1 - rank, "broadcast"), cause


@pytest.mark.parametrize("rank", [0, 1])
def test_an_abort_before_that_call_is_the_cause(rank: int) -> None:
    (cause,) = diagnose(aborts(rank, in_the_call=False).history(1), told())
    assert (cause.how, cause.rank) == ("signal", rank), cause
