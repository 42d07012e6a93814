"""The registry of guarantees, and what holds for every check."""

from __future__ import annotations

import pytest

from harness._tests.histories import baseline, run
from harness.checks import GUARANTEES, Guarantee, check_all, check_one
from harness.checks.base import Verdict, guarantee, valid
from harness.checks.vote import minority, rarest
from harness.history import Baseline, History
from harness.wire import GUARANTEE_NAMES

WITHOUT_RECORDS = {"EndsInTime", "NothingLeft"}


def test_each_name_has_its_check_and_each_check_its_name() -> None:
    assert sorted(GUARANTEES) == sorted(GUARANTEE_NAMES)
    assert all(g.promise and g.promise[0].islower() and not g.promise.endswith(".") for g in GUARANTEES.values())


def test_a_healthy_job_breaks_nothing_and_every_verdict_restates_its_promise() -> None:
    verdicts = check_all(run().start().updates(1, 12).leave().history(), baseline())
    assert [v.guarantee for v in verdicts] == list(GUARANTEE_NAMES)
    assert {v.outcome for v in verdicts} == {"valid", "not-applicable"}, [v for v in verdicts if v.outcome == "invalid"]
    assert all(v.promise == GUARANTEES[v.guarantee].promise and v.reason for v in verdicts)


@pytest.mark.parametrize("name", [n for n in GUARANTEE_NAMES if n not in WITHOUT_RECORDS])
def test_nothing_is_valid_where_a_rank_left_no_record(name: str) -> None:
    story = run(ranks=3).start().updates(1, 12).leave()
    story.events = [e for e in story.events if e["rank"] != 2]
    found = GUARANTEES[name].check(story.history(), baseline(ranks=3))
    assert found.outcome in ("unknown", "invalid")
    assert found.outcome == "invalid" or "rank 2" in found.reason


@pytest.mark.parametrize("name", [n for n in GUARANTEE_NAMES if n not in WITHOUT_RECORDS])
def test_nothing_is_valid_where_the_records_are_damaged(name: str) -> None:
    story = run().start().updates(1, 12).leave()
    story.damaged = ("rank-1/events-0.jsonl:7: not JSON",)
    found = GUARANTEES[name].check(story.history(), baseline())
    assert found.outcome == "unknown"
    assert "rank-1/events-0.jsonl:7" in found.reason


def test_a_check_that_crashes_is_unknown_and_shows_where() -> None:
    def crash(_history: History, _baseline: Baseline | None) -> Verdict:
        raise ZeroDivisionError("oops")

    found = check_one(Guarantee("Crashing", "it crashes", crash), run().start().history(), None)
    assert (found.outcome, found.guarantee, found.promise) == ("unknown", "Crashing", "it crashes")
    assert "ZeroDivisionError" in found.reason
    assert "raise ZeroDivisionError" in found.seen["traceback"]


def test_a_name_can_be_taken_only_once() -> None:
    with pytest.raises(ValueError, match="EndsInTime is registered twice"):
        guarantee("EndsInTime", "something else")(lambda _history, _baseline: valid(""))


@pytest.mark.parametrize(
    ("values", "odd"),
    [
        pytest.param({}, (), id="nobody votes"),
        pytest.param({0: "a", 1: "a"}, (), id="all agree"),
        pytest.param({0: "b", 1: "a", 2: "a"}, (0,), id="the first asked is the odd one"),
        pytest.param({0: "a", 1: "b", 2: "a", 3: "c", 4: "a"}, (1, 3), id="two odd ones of different kinds"),
        pytest.param({0: "a", 1: "b"}, None, id="one against one"),
        pytest.param({0: "a", 1: "a", 2: "b", 3: "b"}, None, id="two against two"),
        pytest.param({0: "a", 1: "a", 2: "b", 3: "c"}, None, id="half is no majority"),
    ],
)
def test_minority(values: dict[int, str], odd: tuple[int, ...] | None) -> None:
    assert minority(values) == odd


def test_rarest_is_nobody_on_a_tie() -> None:
    assert rarest({0: 3, 1: 0}) == 1
    assert rarest({0: 2, 1: 2}) is None


def test_who_names_its_second_argument_needs_the_fault_free_run() -> None:
    without = {name for name, found in GUARANTEES.items() if not found.needs_baseline}
    assert {"NothingLeft", "EndsInTime", "FaultFired"} <= without
    assert without.isdisjoint({"EndsLikeBaseline", "SamplesOnce", "RollbackExact", "CulpritNamed"})
    told = (
        run().start().updates(1, 12).leave().history(),
        run(expect="stops").start().updates(1, 3).kill(0).history(1),
    )
    for name in without:
        assert [GUARANTEES[name].check(h, None) for h in told] == [GUARANTEES[name].check(h, baseline()) for h in told]
