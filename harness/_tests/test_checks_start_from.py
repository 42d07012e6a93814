"""A job that begins with what a crash had left: what each check makes of a first launch that is no beginning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from harness._tests.histories import Story, baseline, run
from harness.checks import GUARANTEES, Verdict
from harness.expect import judge
from harness.history import Baseline
from harness.plan import Expect
from harness.wire import Kind

Tell = Callable[[], Story]

BASELINE = baseline()


def begun(
    load: int = 5, first: int | None = None, *, acknowledged: int | None = 5, with_store: bool = False, **plan: Any
) -> Story:
    """Goes on from what was left of step ``load``, with update ``first``, and is done at 12."""
    story = run(start_from="/kept/1-safe-new.tar", acknowledged=acknowledged, **plan).start(load=load or None)
    if load == 0:
        for rank in (0, 1):
            story.edit(Kind.STATE, rank=rank, data={"matched_step": 0})
    elif not with_store:
        story.drop(Kind.LOAD).drop(Kind.INVENTORY)
    return story.updates(load + 1 if first is None else first, 12).leave()


def of_no_step(**plan: Any) -> Story:
    """A mixture: neither the script nor its state says which step it is of, so that steps are counted from 0."""
    story = run(start_from="/kept/1-wrong-state.tar", acknowledged=5, **plan).start()
    for rank in (0, 1):
        story.edit(Kind.STATE, rank=rank, data={"params": "mixed"})
    return story.updates(1, 7).leave()


def told_by_rank_1_first() -> Story:
    story = of_no_step()
    story.events.sort(key=lambda event: event["rank"], reverse=True)
    return story


def again(load: int) -> Story:
    """Goes on from step 5, is killed in update 9, and goes on from ``load``."""
    story = run(start_from="/kept/1-safe-new.tar", acknowledged=5).start(load=5).updates(6, 8).begin(1, 9).kill(1)
    return story.cut_off().start(load=load).drop(Kind.LOAD).drop(Kind.INVENTORY).updates(load + 1, 12).leave()


def verdict(name: str, story: Story, against: Baseline | None = BASELINE) -> Verdict:
    return GUARANTEES[name].check(story.history(), against)


KEPT: dict[str, tuple[Tell, set[str]]] = {
    "it goes on exactly": (
        begun,
        {"RollbackExact", "SamplesOnce", "EndsLikeBaseline", "ReplicasAgree", "AcknowledgedSurvives"},
    ),
    "a store says where": (lambda: begun(with_store=True), {"RollbackExact", "SamplesOnce", "AcknowledgedSurvives"}),
    "nothing had been saved": (
        lambda: begun(0, acknowledged=None),
        {"RollbackExact", "SamplesOnce", "EndsLikeBaseline"},
    ),
    "a newer save than the acknowledged one": (lambda: begun(10), {"RollbackExact", "AcknowledgedSurvives"}),
    "a second crash": (lambda: again(5), {"RollbackExact", "ReplayIdentical", "SamplesOnce", "EndsLikeBaseline"}),
    "a second crash, and back to before the first": (
        lambda: again(3),
        {"RollbackExact", "ReplayIdentical", "SamplesOnce", "EndsLikeBaseline"},
    ),
}


@pytest.mark.parametrize(("tell", "names"), KEPT.values(), ids=KEPT)
def test_a_promise_that_is_kept(tell: Tell, names: set[str]) -> None:
    assert {name: verdict(name, tell()) for name in names if verdict(name, tell()).outcome != "valid"} == {}


BROKEN: dict[str, tuple[Tell, str, int, int]] = {
    "the parameters are not that step's": (
        lambda: begun().edit(Kind.STATE, rank=1, data={"params": "other"}),
        "RollbackExact",
        1,
        5,
    ),
    "the optimizer was not restored": (
        lambda: begun().edit(Kind.STATE, rank=0, data={"optimizer": "fresh"}),
        "RollbackExact",
        0,
        5,
    ),
    "other initial weights": (
        lambda: begun(0, acknowledged=None).edit(Kind.STATE, rank=0, data={"params": "other"}),
        "RollbackExact",
        0,
        0,
    ),
    "a state of no step": (of_no_step, "RollbackExact", 0, 0),
    "a state of no step, of which the lowest rank is named": (told_by_rank_1_first, "RollbackExact", 0, 0),
    "an update is left out": (lambda: begun(5, first=7), "RollbackExact", 0, 7),
    "the samples of an update are left out": (lambda: begun(5, first=7), "SamplesOnce", 0, 6),
    "the checkpoint's own update is done again": (lambda: begun(5, first=5), "RollbackExact", 0, 5),
    "one rank has another state": (
        lambda: begun().edit(Kind.STATE, rank=1, data={"params": "other"}),
        "ReplicasAgree",
        1,
        5,
    ),
    "a second crash, and on beyond what was ever done": (lambda: again(10), "RollbackExact", 0, 11),
    "other samples": (
        lambda: begun().edit(Kind.UPDATE, rank=1, step=8, data={"ids": [0, 1]}),
        "SamplesOnce",
        1,
        8,
    ),
    "an older save": (lambda: begun(acknowledged=10), "AcknowledgedSurvives", 0, 10),
    "an older save, says the store": (
        lambda: begun(acknowledged=10, with_store=True),
        "AcknowledgedSurvives",
        0,
        10,
    ),
    "nothing, though a save was acknowledged": (lambda: begun(0), "AcknowledgedSurvives", 0, 5),
    "nothing, and by the restart of a launch that came to no load": (
        lambda: (
            run(start_from="/kept/1-lost-work.tar", acknowledged=5)
            .start()
            .drop(Kind.STATE)
            .kill(1)
            .cut_off()
            .start()
            .edit(Kind.STATE, restart=1, data={"matched_step": 0})
            .updates(1, 12)
            .leave()
        ),
        "AcknowledgedSurvives",
        0,
        5,
    ),
    "another end": (
        lambda: begun().edit(Kind.EXIT, rank=1, data={"params": "other"}),
        "EndsLikeBaseline",
        1,
        12,
    ),
}


@pytest.mark.parametrize(("tell", "name", "rank", "step"), BROKEN.values(), ids=BROKEN)
def test_a_promise_that_is_broken(tell: Tell, name: str, rank: int, step: int) -> None:
    found = verdict(name, tell())
    assert (found.outcome, found.rank, found.step) == ("invalid", rank, step), found


UNKNOWN: dict[str, tuple[Tell, str, Baseline | None, str]] = {
    "no fault-free run": (begun, "RollbackExact", None, "not on record before"),
    "a state of no step, and no fault-free run": (of_no_step, "RollbackExact", None, "there is no fault-free run"),
    "a script that does not repeat itself": (
        of_no_step,
        "RollbackExact",
        replace(BASELINE, repeatable=False),
        "not repeatable",
    ),
    "a state that may differ": (
        lambda: of_no_step(tolerance=1e-3),
        "RollbackExact",
        BASELINE,
        "the scenario says that its bytes may differ",
    ),
    "parameters that may differ": (
        lambda: begun(tolerance=1e-3).edit(Kind.STATE, rank=1, data={"params": "other"}),
        "RollbackExact",
        BASELINE,
        "the scenario says that its bytes may differ",
    ),
    "samples of steps without a number": (of_no_step, "SamplesOnce", BASELINE, "at which step rank 0 began"),
    "replays of steps without a number": (of_no_step, "ReplayIdentical", BASELINE, "at which step rank 0 began"),
    "which save it was": (of_no_step, "AcknowledgedSurvives", BASELINE, "from which step rank 0 went on"),
}


@pytest.mark.parametrize(("tell", "name", "against", "says"), UNKNOWN.values(), ids=UNKNOWN)
def test_what_nobody_can_know(tell: Tell, name: str, against: Baseline | None, says: str) -> None:
    found = verdict(name, tell(), against)
    assert (found.outcome, says in found.reason) == ("unknown", True), found


def test_a_wrong_end_of_steps_without_a_number_is_placed_at_the_end() -> None:
    story = of_no_step()
    found = verdict("EndsLikeBaseline", story)
    assert (found.outcome, "first differ" in found.reason) == ("invalid", False), found


def test_what_was_not_acknowledged_is_not_asked_for() -> None:
    assert verdict("AcknowledgedSurvives", begun(0, acknowledged=None)).outcome == "not-applicable"


def test_updates_of_the_earlier_run_are_said_not_to_be_judged() -> None:
    assert "the 5 before them are of an earlier run" in verdict("SamplesOnce", begun()).reason


@pytest.mark.parametrize(("wanted", "outcome"), [(5, "passed"), (10, "failed")])
def test_the_step_that_the_first_launch_goes_on_from_can_be_expected(wanted: int, outcome: str) -> None:
    judgement = judge(begun(expect=Expect(outcome="recovers", resume_step=wanted)).history(), BASELINE)
    assert judgement.outcome == outcome, judgement.headline
    assert f"{'resumed' if outcome == 'passed' else 'a resume'} from step {wanted}" in judgement.headline
