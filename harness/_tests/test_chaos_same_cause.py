"""One cause gets one file, a different bug keeps its own; the end of a night says how often, and what was drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.chaos.command import summary
from harness.chaos.finding import Found
from harness.chaos.job import changed, make_job
from harness.chaos.night import Night, Order
from harness.chaos.same_cause import folded
from harness.chaos.trial import Trial
from harness.faults import KINDS, At, Fault
from harness.faults.flip_bit import FlipBit
from harness.faults.kill import Kill

KILL = Kill(rank=1, at=At(step=3, phase="backward"))


def trial(number: int, *blamed: str, faults: tuple[Fault, ...] = (KILL,), ranks: int = 2, fired: int = 1) -> Trial:
    scenario = changed(make_job(workload="ddp_mlp", ranks=ranks, steps=8, save_every=2), max_restarts=1, fault=faults)
    return Trial(
        number=number,
        scenario=scenario,
        outcome="failed" if blamed else "passed",
        headline=" and ".join(blamed) or "all is well",
        way=f"failed: {blamed[0]} invalid" if blamed else "",
        blamed=blamed,
        places=tuple((fault.kind, fault.at.phase or "forward", scenario.workload) for fault in faults),
        fired=tuple(fault.kind for fault in faults[:fired]),
    )


def found(replayed: Trial, *, is_reproduced: bool = True) -> Found:
    name = Path(f"chaos-{replayed.number}.toml")
    faults = 0 if replayed.scenario is None else len(replayed.scenario.faults)
    return Found(trial=replayed, file=name, is_reproduced=is_reproduced, num_faults=faults, replayed=replayed)


FIRST = found(trial(7, "EndsLikeBaseline", "SamplesOnce"))
OTHERS: dict[str, tuple[Found, bool]] = {
    "the same faults, each named by what the other breaks too": (
        found(trial(4, "SamplesOnce", "EndsLikeBaseline")),
        True,
    ),
    "in another update": (
        found(trial(4, "SamplesOnce", "EndsLikeBaseline", faults=(Kill(rank=0, at=At(step=1, phase="backward")),))),
        True,
    ),
    "it breaks what the other does not": (found(trial(4, "SamplesOnce")), False),
    "in another phase": (
        found(trial(4, "SamplesOnce", "EndsLikeBaseline", faults=(Kill(rank=1, at=At(step=3, phase="forward")),))),
        False,
    ),
    "in another launch": (
        found(
            trial(
                4,
                "SamplesOnce",
                "EndsLikeBaseline",
                faults=(Kill(rank=1, at=At(step=3, phase="backward", restart=1)),),
            )
        ),
        False,
    ),
    "another fault": (
        found(trial(4, "SamplesOnce", "EndsLikeBaseline", faults=(FlipBit(rank=1, at=At(step=3)),))),
        False,
    ),
    "its file does not fail in the same way": (
        found(trial(4, "SamplesOnce", "EndsLikeBaseline"), is_reproduced=False),
        False,
    ),
    "no file of it": (Found(trial=trial(4, "SamplesOnce", "EndsLikeBaseline"), problem="no time"), False),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_has_one_cause_is_folded_and_a_different_bug_is_not(name: str) -> None:
    other, is_same = OTHERS[name]
    for order in ([FIRST, other], [other, FIRST]):
        told = folded(order, [FIRST.trial, other.trial])
        assert [one.trial.number for one in told] == [4, 7]
        assert [one.same_as for one in told] == ([None, 4] if is_same else [None, None])
        assert [one.others for one in told] == ([(7,), ()] if is_same else [(), ()])


def test_the_wrong_culprit_stands_for_many_things_that_can_be_wrong() -> None:
    one, two = found(trial(1, "CulpritNamed", "EndsInTime")), found(trial(2, "EndsInTime", "CulpritNamed"))
    assert [each.same_as for each in folded([one, two], [])] == [None, None]


def test_the_smaller_one_is_kept_and_stands_for_every_plan_that_failed_in_one_of_the_ways() -> None:
    large = found(trial(1, "SamplesOnce", "EndsLikeBaseline", ranks=4))
    again = trial(9, "SamplesOnce")
    told = folded([large, FIRST], [large.trial, FIRST.trial, again, trial(3), trial(5, "MetricRight")])
    assert [(one.trial.number, one.same_as, one.others) for one in told] == [(1, 7, ()), (7, None, (1, 9))]


def night(found: list[Found], trials: list[Trial]) -> Night:
    order = Order(seed=1, num_runs=1, duration_s=None, store_dir=Path(), runs_dir=Path(), out_dir=Path())
    return Night(order=order, trials=trials, canary=trial(-1, "SamplesOnce"), found=found)


def test_the_summary_gives_one_file_and_how_often_it_was_found() -> None:
    kept = replace(FIRST, others=tuple(range(10, 24)))
    lines = [*summary(night([replace(found(trial(4, "SamplesOnce")), same_as=7), kept], []))]
    assert lines[0] == "plan 4: of the same cause as plan 7: SamplesOnce"
    assert "  replay   pytest chaos-7.toml" in lines
    assert "  also     found 14 times: plans 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, ..." in lines
    assert not any("chaos-4" in line for line in lines)


def test_the_summary_says_why_the_launches_failed() -> None:
    why = "launch 1, rank 0: UnboundLocalError: loss at train.py:66 (rank-0/events-1.jsonl:9)"
    one = found(replace(trial(7, "EndsLikeBaseline"), causes=(why,)))
    assert [*summary(night([one], []))][:2] == ["plan 7: EndsLikeBaseline", f"  cause    {why}"]


def test_the_summary_says_how_many_faults_of_each_kind_were_drawn_and_which_did_not_fire() -> None:
    both = (KILL, FlipBit(rank=0, at=At(step=5, restart=1)))
    lines = [*summary(night([], [trial(0), trial(1, faults=both), trial(2, faults=both, fired=2)]))]
    start = next(n for n, line in enumerate(lines) if line.startswith("faults: "))
    assert lines[start] == f"faults: 5 drawn, 4 fired, 2 of {len(KINDS)} kinds: kill 3, flip_bit 1 of 2"
    assert lines[start + 1].startswith("        never drawn: abort_group, change_reduction, ")
    assert max(map(len, lines)) <= 118


def test_a_night_without_any_plan_says_nothing_of_faults() -> None:
    assert not [line for line in summary(night([], [])) if line.startswith("faults")]
