"""What a run is worth against what its scenario expects: unknown never passes, and a consequence blames nobody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from harness import expect as expect_module
from harness._tests.histories import Story, baseline, run
from harness.expect import Judgement, judge
from harness.faults import At, Fault, load_fault
from harness.faults.kill import Kill
from harness.history import Baseline, History
from harness.plan import Broken, Expect
from harness.wire import GUARANTEE_NAMES, Kind

STEP_9 = Kill(rank=1, at=At(step=9, phase="backward"))
Tell = Callable[[], Story]


def judged(story: Story, exit_code: int | None = 0, **outcome: Any) -> Judgement:
    found = judge(story.history(exit_code, **outcome), baseline(story.plan.ranks))
    assert [v.guarantee for v in found.verdicts] == list(GUARANTEE_NAMES)
    assert found.headline
    assert "\n" not in found.headline
    return found


def clean(**plan: Any) -> Story:
    return run(**plan).start().updates(1, 12).leave()


def recovering(load: int = 5, wanted: Expect | None = None, **plan: Any) -> Story:
    wanted = wanted or Expect(outcome="recovers", resume_step=5, restarts=1)
    story = run(faults=[STEP_9], expect=wanted, **plan).start(with_store=True).updates(1, 5).save().updates(6, 8)
    story.begin(1, 9).fire(1).kill(1).cut_off()
    return story.start(load=load, with_store=True).updates(load + 1, 12).leave()


def stopping(fault: Fault = STEP_9, wanted: Expect | None = None) -> Story:
    story = run(faults=[fault], expect=wanted or Expect(outcome="stops")).start().updates(1, 8)
    return story.begin(1, 9).fire(1).kill(1).cut_off()


def skipping(*broken: Broken) -> Story:
    fault = load_fault({"kind": "skip_collective", "rank": 1, "at": {"step": 5}})
    wanted = Expect(outcome="detected", broken=broken or (Broken(guarantee="CollectivesAgree", rank=1, step=5),))
    story = run(ranks=3, faults=[fault], expect=wanted).start().updates(1, 4)
    for rank in range(3):
        story.step = 5
        if rank == 1:
            story.fire(1, step=5).collective(1, faulted="skipped")
        else:
            story.begin(rank, 5)
    for rank in range(3):
        story.update(rank, 5)
    return story.updates(6, 12).leave()


def refusing(kind: str = "LoadRefused", message: str = "nothing in it may be loaded", said: str | None = None) -> Story:
    story = run(expect=Expect(outcome="refuses", message=said)).start()
    for rank in range(2):
        story.raises(rank, kind, message, phase="load")
    return story


# -- what passes ---------------------------------------------------------------------------------------------------

PASSES: dict[str, tuple[Tell, int]] = {
    "a clean run": (clean, 0),
    "a clean run on four ranks": (lambda: clean(ranks=4), 0),
    "a clean run that names guarantees": (lambda: clean(guarantees=("ReplicasAgree", "SamplesOnce")), 0),
    "a recovery": (recovering, 0),
    "a stop that names the culprit": (stopping, 1),
    "a skip that is found": (skipping, 0),
    "a skip that is found, with its operation in another spelling": (
        lambda: skipping(Broken(guarantee="CollectivesAgree", operation="AllReduce")),
        0,
    ),
    "a refusal by the store": (refusing, 1),
    "a refusal that says the words": (lambda: refusing("ValueError", "seed differs: 1, not 0", "SEED DIFFERS"), 1),
}


@pytest.mark.parametrize("name", PASSES)
def test_passes(name: str) -> None:
    tell, exit_code = PASSES[name]
    found = judged(tell(), exit_code)
    assert found.outcome == "passed", (found.headline, found.problems)
    assert (found.blamed, found.problems) == ((), ())


def test_the_headline_of_a_recovery_says_what_happened() -> None:
    assert judged(recovering()).headline.startswith("recovers, 1 restart, resumed from step 5, ")


# -- what fails ----------------------------------------------------------------------------------------------------


def diverging_before_the_skip() -> Story:
    return skipping().edit(Kind.UPDATE, rank=2, step=3, data={"params": "other"})


FAILS: dict[str, tuple[Tell, int, str]] = {
    "a clean run with a broken guarantee": (
        lambda: clean().edit(Kind.UPDATE, rank=1, step=7, data={"params": "other"}),
        0,
        "ReplicasAgree is broken (rank 1, step 7)",
    ),
    "a clean run that ends badly": (
        lambda: run().start().updates(1, 3).begin(1, 4).raises(1, "ValueError", "a bug").cut_off(),
        1,
        "exit code is 1",
    ),
    "a named guarantee that does not apply": (
        lambda: clean(guarantees=("ReplayIdentical",)),
        0,
        "ReplayIdentical does not apply",
    ),
    "a resume from another step": (
        lambda: recovering(wanted=Expect(outcome="recovers", resume_step=4)),
        0,
        "a resume from step 4 is expected, but rank 0 went on from step 5, rank 1 went on from step 5",
    ),
    "another number of restarts": (
        lambda: recovering(wanted=Expect(outcome="recovers", restarts=2)),
        0,
        "2 restarts are expected, and there were 1",
    ),
    "a recovery without a restart": (
        lambda: run(expect=Expect(outcome="recovers", resume_step=5)).start().updates(1, 12).leave(),
        0,
        "there was no restart",
    ),
    "a recovery that ends badly": (
        lambda: stopping(wanted=Expect(outcome="recovers")),
        1,
        "should end well",
    ),
    "a job that should stop and does not": (
        lambda: recovering(wanted=Expect(outcome="stops")),
        0,
        "should fail",
    ),
    "a stop with the wrong culprit": (
        lambda: run(faults=[STEP_9], expect="stops").start().updates(1, 8).begin(1, 9).fire(1).kill(0).cut_off(),
        1,
        "CulpritNamed is broken",
    ),
    "a skip found on another rank than listed": (
        lambda: skipping(Broken(guarantee="CollectivesAgree", rank=0)),
        0,
        "found at rank 1",
    ),
    "a skip found in another step than listed": (
        lambda: skipping(Broken(guarantee="CollectivesAgree", step=6)),
        0,
        "found at step 5",
    ),
    "a skip found with another operation than listed": (
        lambda: skipping(Broken(guarantee="CollectivesAgree", operation="broadcast")),
        0,
        "found at operation all_reduce",
    ),
    "what should be broken holds": (
        lambda: skipping(Broken(guarantee="SamplesOnce")),
        0,
        "SamplesOnce should be found broken, but the verdict is valid",
    ),
    "something else is broken before what is listed": (diverging_before_the_skip, 0, "ReplicasAgree is broken"),
    "a refusal with other words": (lambda: refusing(said="seed differs"), 1, "should say 'seed differs'"),
    "a failure that is no refusal": (lambda: refusing("ValueError", "a bug"), 1, "no refusal is on record"),
}


@pytest.mark.parametrize("name", FAILS)
def test_fails(name: str) -> None:
    tell, exit_code, words = FAILS[name]
    found = judged(tell(), exit_code)
    assert found.outcome == "failed", found.headline
    assert words in " ".join([found.headline, *found.problems])


def test_a_run_that_leaves_something_behind_fails_whatever_it_expects() -> None:
    left = "process 4711 (python) still ran"
    for story, exit_code in ((clean(), 0), (recovering(), 0), (stopping(), 1), (skipping(), 0), (refusing(), 1)):
        found = judged(story, exit_code, leftovers=(left,))
        assert (found.outcome, [v.guarantee for v in found.blamed]) == ("failed", ["NothingLeft"])
        assert left in found.headline


def test_a_run_that_does_not_end_in_time_fails_whatever_it_expects() -> None:
    for story in (clean(), stopping()):
        assert judged(story, timed_out=True).outcome == "failed"


def test_a_consequence_of_what_is_listed_blames_nobody() -> None:
    story = skipping().edit(Kind.UPDATE, rank=1, step=6, data={"params": "other"})
    found = judged(story)
    assert {v.guarantee for v in found.verdicts if v.outcome == "invalid"} >= {"CollectivesAgree", "ReplicasAgree"}
    assert found.outcome == "passed", found.headline


def test_a_bug_is_found_where_its_script_has_no_sound_baseline() -> None:
    story = skipping()
    found = judge(story.history(), baseline(3, repeatable=False))
    assert {v.outcome for v in found.verdicts if v.guarantee == "EndsLikeBaseline"} == {"unknown"}
    assert found.outcome == "passed", found.headline
    assert judge(clean(ranks=3).history(), baseline(3, repeatable=False)).outcome == "unknown"


def test_without_a_sound_baseline_a_pass_says_what_was_not_compared() -> None:
    story = skipping()
    found = judge(story.history(), unsound(3))
    assert (found.outcome, found.doubt, found.baseline_dir) == ("passed", "they differ in params", "/b/run-2")
    assert found.headline.endswith("; EndsLikeBaseline is unknown")
    assert judge(story.history(), baseline(3)).doubt == ""


def unsound(ranks: int) -> Baseline:
    return replace(baseline(ranks, repeatable=False), reason="they differ in params", run_dir="/b/run-2")


def test_what_the_guarantees_demand_is_unknown_without_a_sound_baseline_unless_less_is_asked_for() -> None:
    story = skipping()
    story.plan = replace(story.plan, expect=Expect(outcome="guaranteed"))
    assert judge(story.history(), baseline(3)).outcome == "passed"
    found = judge(story.history(), unsound(3))
    assert found.outcome == "unknown"
    assert found.headline.startswith("EndsLikeBaseline is unknown: the script is not repeatable: they differ in params")
    assert [v.guarantee for v in found.blamed] == ["EndsLikeBaseline"]
    story.plan = replace(story.plan, guarantees=("SamplesOnce",))
    assert judge(story.history(), unsound(3)).outcome == "passed"


def test_a_run_that_does_not_pass_says_that_the_script_fails_without_faults_too() -> None:
    story = run(expect="recovers").start().updates(1, 3).begin(1, 4).raises(1, "ValueError", "a bug").cut_off()
    found = judge(
        story.history(1), replace(unsound(2), repeatable=None, reason="the run without faults did not end well")
    )
    assert (found.outcome, found.doubt) == ("failed", "the run without faults did not end well")


def test_a_job_that_stops_has_no_end_to_compare() -> None:
    story = stopping()
    story.plan = replace(story.plan, expect=Expect(outcome="guaranteed"))
    found = judge(story.history(1), unsound(2))
    assert (found.outcome, found.doubt) == ("passed", "")


def test_a_hang_can_be_what_is_listed() -> None:
    wanted = Expect(outcome="detected", broken=(Broken(guarantee="EndsInTime", rank=1, step=4),))
    story = run(expect=wanted).start().updates(1, 3).begin(0, 4)
    assert judged(story, timed_out=True).outcome == "passed"
    assert judged(run(expect=wanted).start().updates(1, 12).leave()).outcome == "failed"


# -- what is unknown -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tell", [recovering, stopping, skipping, clean, refusing])
def test_disarmed_is_unknown_never_green(tell: Tell) -> None:
    """Its faults are left out, whatever it expected and whatever was found."""
    expects = tell().plan
    story = run(faults=expects.faults, expect=expects.expect, disarmed=True).start().updates(1, 12).leave()
    found = judged(story)
    assert found.outcome == "unknown", found.headline
    assert found.blamed[0].guarantee == "FaultFired"
    assert found.headline.startswith("FaultFired is unknown")


def test_a_fault_that_did_not_fire_is_unknown_even_if_something_is_broken() -> None:
    story = run(faults=[STEP_9], expect="recovers").start().updates(1, 8).leave()
    found = judged(story.edit(Kind.UPDATE, rank=1, step=7, data={"params": "other"}))
    assert found.outcome == "unknown"
    assert [v.guarantee for v in found.blamed][:1] == ["FaultFired"]
    assert "ReplicasAgree" in [v.guarantee for v in found.blamed]


def test_a_fault_that_did_not_fire_can_be_what_is_listed() -> None:
    wanted = Expect(outcome="detected", broken=(Broken(guarantee="FaultFired", rank=1),))
    late = Kill(rank=1, at=At(step=13))
    assert judged(run(faults=[late], expect=wanted).start().updates(1, 12).leave()).outcome == "passed"
    story = run(faults=[late], expect=wanted).start().updates(1, 12).leave()
    assert judged(story.edit(Kind.UPDATE, rank=1, step=7, data={"params": "other"})).outcome == "failed"
    disarmed = run(faults=[late], expect=wanted, disarmed=True).start().updates(1, 12).leave()
    assert judged(disarmed).outcome == "unknown"


def begun_anew() -> Story:
    """Of a job that saves nothing which is seen the last launch begins at zero: it may have been meant to."""
    wanted = Expect(outcome="detected", broken=(Broken(guarantee="NewestCompleteLoads", step=1, verdict="unknown"),))
    story = run(faults=[STEP_9], expect=wanted, max_restarts=1).start().updates(1, 8)
    for rank in sorted(story.alive):
        story.begin(rank, 9)
    story.fire(1).kill(1).cut_off().start().updates(1, 12).leave()
    return story


def test_what_must_be_left_open_is() -> None:
    found = judged(begun_anew())
    assert found.outcome == "passed", found.headline
    story = begun_anew()
    story.plan = replace(story.plan, expect=replace(story.plan.expect, resume_step=0))
    assert (
        judged(story).problems[0].startswith("NewestCompleteLoads (step 1) should be unknown, but the verdict is not-")
    )


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        pytest.param(Broken(guarantee="NewestCompleteLoads"), "should be found broken; it is unknown", id="as broken"),
        pytest.param(
            Broken(guarantee="NewestCompleteLoads", step=2, verdict="unknown"),
            "should be unknown; it was found at step 1",
            id="at another step",
        ),
        pytest.param(
            Broken(guarantee="ReplicasAgree", verdict="unknown"),
            "should be unknown, but the verdict is valid",
            id="another guarantee",
        ),
    ],
)
def test_what_is_left_open_is_not_what_is_listed(listed: Broken, said: str) -> None:
    story = begun_anew()
    story.plan = replace(story.plan, expect=Expect(outcome="detected", broken=(listed,)))
    found = judged(story)
    assert found.outcome != "passed"
    assert any(said in problem for problem in found.problems), found.problems


def test_a_record_with_lost_lines_leaves_nothing_open_that_names_its_place() -> None:
    assert judged(damaged(begun_anew())).outcome != "passed"


def without_rank(story: Story, rank: int) -> Story:
    story.events = [e for e in story.events if e["rank"] != rank]
    return story


def damaged(story: Story) -> Story:
    story.damaged = ("rank-1/events-0.jsonl:3: not JSON",)
    return story


def idle() -> Story:
    story = run().start()
    story.events = [e for e in story.events if e["kind"] == Kind.START]
    return story.exits(0, 0).exits(1, 0)


def recovering_without_updates() -> Story:
    """A script of raw tensors: it ends well after a restart, and nothing tells what its state is worth."""
    story = recovering(wanted=Expect(outcome="recovers"))
    return story.drop(Kind.UPDATE).drop(Kind.STATE)


def test_a_recovery_without_any_update_on_record_is_unknown() -> None:
    found = judged(recovering_without_updates())
    assert found.outcome != "passed"
    assert "no update is on record: nothing shows that the state was recovered" in found.problems


@pytest.mark.parametrize(
    "tell", [lambda: damaged(clean()), idle], ids=["a line of the record is damaged", "nothing at all was done"]
)
def test_what_the_records_cannot_tell_is_unknown(tell: Tell) -> None:
    assert judged(tell()).outcome == "unknown"


def test_a_rank_without_a_record_never_passes() -> None:
    assert judged(without_rank(clean(ranks=3), 2)).outcome != "passed"


def test_no_baseline_is_unknown() -> None:
    found = judge(clean().history(), None)
    assert (found.outcome, [v.guarantee for v in found.blamed]) == ("unknown", ["EndsLikeBaseline"])


def test_a_diagnosis_that_crashes_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(_history: History, _baseline: object) -> list[Any]:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(expect_module, "diagnose", crash)
    found = judged(clean())
    assert found.outcome == "unknown"
    assert "diagnosis itself crashed: ZeroDivisionError" in found.headline


@pytest.mark.parametrize(("restart", "step", "first"), [(1, 7, "RollbackExact"), (0, 3, "CulpritNamed")])
def test_a_launch_that_goes_on_from_another_state_is_told_before_what_may_have_come_of_it(
    restart: int, step: int, first: str
) -> None:
    story = recovering().edit(Kind.STATE, rank=1, restart=1, data={"params": "x"})
    story.edit(Kind.COLLECTIVE, rank=1, restart=restart, step=step, data={"numel": 1})
    found = judged(story)
    assert {"RollbackExact", "CollectivesAgree"} <= {verdict.guarantee for verdict in found.blamed}
    assert found.blamed[0].guarantee == first
    assert found.headline.startswith(f"{first} is broken")
