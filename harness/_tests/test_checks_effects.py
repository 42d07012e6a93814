"""EffectsOnce."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from harness._tests.histories import Story, baseline, run
from harness.checks import GUARANTEES
from harness.checks.base import Verdict
from harness.effects import Found
from harness.history import Baseline
from harness.scenario import Effect
from harness.wire import Kind

METRICS = Effect(database="{checkpoints}.sqlite", table="metrics", key=("run_id", "step"), ignore=("launch",))
USAGE = Effect(database="{checkpoints}.sqlite", table="usage", key=("run_id",))
GONE = Found(problem="there is no such file")

Row = dict[str, Any]


def row(step: int, launch: int = 0, loss: float | None = None) -> Row:
    return {"run_id": "a", "step": step, "loss": 1 / step if loss is None else loss, "launch": launch}


def metrics(last: int = 12, launch_of: int = 12) -> list[Row]:
    """A row for each update; those after ``launch_of`` were written by launch 1."""
    return [row(step, launch=int(step > launch_of)) for step in range(1, last + 1)]


def usage(samples: int = 48) -> list[Row]:
    return [{"run_id": "a", "samples": samples}]


def resumed(**plan: Any) -> Story:
    """Saved after update 4, killed in update 8: updates 5 to 7 are done again."""
    story = run(effects=(METRICS, USAGE), **plan).start(with_store=True).updates(1, 4).save().updates(5, 7)
    return story.kill(1).cut_off().start(load=4).updates(5, 12).leave()


def verdict(
    written: Sequence[Row] | Found,
    used: Sequence[Row] | Found | None = None,
    story: Story | None = None,
    against: Baseline | None = None,
    exit_code: int = 0,
) -> Verdict:
    story = story or resumed()
    places = (written, usage() if used is None else used)
    found = tuple(one if isinstance(one, Found) else Found(rows=tuple(one)) for one in places)
    history = replace(story.history(exit_code), effects=found[: len(story.plan.effects)])
    return GUARANTEES["EffectsOnce"].check(history, fault_free() if against is None else against)


def fault_free(**changes: Any) -> Baseline:
    effects = (Found(rows=tuple(metrics())), Found(rows=tuple(usage())))
    return baseline(**{"effects": effects} | changes)


def test_effects_that_stand_once_though_their_updates_were_done_twice() -> None:
    found = verdict(metrics(launch_of=7))
    assert found.outcome == "valid", found
    assert "metrics in {checkpoints}.sqlite: 12 effects" in found.reason


WRONG: dict[str, tuple[list[Row] | Found, list[Row], int | None, str]] = {
    "one is written again on replay": (
        [*metrics(), row(5, launch=1)],
        usage(),
        5,
        "run_id = a, step = 5 of metrics in {checkpoints}.sqlite stands 2 times; update 5 was done by launches 0, 1",
    ),
    "the first of several is named, wherever it stands": ([row(7), row(6), *metrics()], usage(), 6, "step = 6"),
    "one is lost at a crash": (
        [r for r in metrics() if r["step"] not in (3, 4)],
        usage(),
        3,
        "step = 3 of metrics in {checkpoints}.sqlite is missing; update 3 was done by launch 0",
    ),
    "the replay of a lost update wrote another value": (
        [*metrics()[:5], row(6, loss=9.5), *metrics()[6:]],
        usage(),
        6,
        "has loss = 9.5, the fault-free run 0.16666666666666666",
    ),
    "a value that is no number": ([*metrics()[:5], row(6) | {"loss": None}, *metrics()[6:]], usage(), 6, "loss = None"),
    "a column that appears after the resume": (
        [*metrics()[:7], *(one | {"resumed": 1} for one in metrics()[7:])],
        usage(),
        8,
        "has resumed = 1, the fault-free run none",
    ),
    "one of an update that was never done": (
        [*metrics(), row(13)],
        usage(),
        13,
        "is there, and the fault-free run has no such effect",
    ),
    "one under another run id": (
        [*metrics()[:11], row(12) | {"run_id": "b"}],
        usage(),
        12,
        "run_id = b, step = 12 of metrics in {checkpoints}.sqlite is there, and the fault-free run has no such",
    ),
    "a counter that counts the replay": (metrics(), usage(60), None, "has samples = 60, the fault-free run 48"),
    "an effect of the whole run is missing": (metrics(), [], None, "run_id = a of usage in {checkpoints}.sqlite is mi"),
    "the file is gone": (GONE, usage(), None, "there is no such file; after the fault-free run it could be read"),
}


@pytest.mark.parametrize(("written", "used", "step", "said"), WRONG.values(), ids=WRONG)
def test_effects_that_do_not_stand_once(
    written: list[Row] | Found, used: list[Row], step: int | None, said: str
) -> None:
    found = verdict(written, used)
    assert (found.outcome, found.step) == ("invalid", step), found
    assert said in found.reason


def test_a_column_that_differs_from_run_to_run_may_have_any_value() -> None:
    timed = [one | {"time": float(n)} for n, one in enumerate(metrics())]
    due = (Found(rows=tuple(metrics()), varying=("time",)), Found(rows=tuple(usage())))
    assert verdict(timed, against=fault_free(effects=due)).outcome == "valid"
    assert verdict(timed).outcome == "invalid"


def test_both_rows_of_an_effect_that_stands_twice_are_shown() -> None:
    found = verdict([*metrics(), row(5, launch=1)])
    assert found.seen == {"first": row(5), "again": row(5, launch=1)}
    assert (found.restart, found.file) == (1, "effects.json")


def killed() -> Story:
    """It ends for good in update 8, after three updates that no checkpoint holds."""
    story = run(effects=(METRICS, USAGE)).start(with_store=True).updates(1, 4).save().updates(5, 7)
    return story.kill(1).cut_off()


def test_a_job_that_failed_need_not_have_told_all() -> None:
    assert verdict(metrics(6), usage(24), killed(), exit_code=1).outcome == "valid"
    assert verdict([*metrics(6), row(2)], usage(24), killed(), exit_code=1).step == 2


def of_a_start(first: int) -> Story:
    return run(effects=(METRICS, USAGE), start_from="/left").start(load=first).updates(first + 1, 12).leave()


def test_what_an_earlier_run_had_done_it_had_told_by_itself() -> None:
    assert verdict(metrics()[4:], usage(32), of_a_start(4)).outcome == "valid"
    assert verdict(metrics()[5:], usage(32), of_a_start(4)).step == 5
    assert verdict(metrics(), usage(48), of_a_start(4)).outcome == "valid"


def test_a_job_that_began_at_an_unknown_step_is_unknown() -> None:
    story = of_a_start(4).drop(Kind.LOAD).edit(Kind.STATE, data={"matched_step": None, "claimed_step": None})
    assert verdict(metrics(), usage(), story).outcome == "unknown"


def test_floats_may_differ_where_the_scenario_states_a_tolerance() -> None:
    near = [*metrics()[:5], row(6, loss=0.17), *metrics()[6:]]
    assert verdict(near, story=resumed(tolerance=0.1)).outcome == "valid"
    assert verdict(near).outcome == "invalid"
    assert verdict(metrics(), usage(60), resumed(tolerance=0.1)).outcome == "invalid"


OPEN = {
    "the fault-free run wrote none": (metrics(), fault_free(effects=(GONE, GONE)), "does not tell: there is no such"),
    "neither could be read": (GONE, fault_free(effects=(GONE, GONE)), "there is no such file"),
    "the fault-free run is from before": (metrics(), fault_free(effects=()), "there is no fault-free run"),
}


@pytest.mark.parametrize(("written", "against", "said"), OPEN.values(), ids=OPEN)
def test_without_anything_to_compare_with_it_is_unknown(
    written: list[Row] | Found, against: Baseline, said: str
) -> None:
    found = verdict(written, against=against)
    assert found.outcome == "unknown", found
    assert said in found.reason


def test_twice_is_twice_without_anything_to_compare_with() -> None:
    assert verdict([*metrics(), row(5)], against=fault_free(effects=())).step == 5


def test_effects_that_were_not_kept_are_unknown() -> None:
    assert GUARANTEES["EffectsOnce"].check(resumed().history(), fault_free()).outcome == "unknown"


def test_a_scenario_that_names_none_has_none_to_judge() -> None:
    found = verdict([], [], run().start().updates(1, 12).leave())
    assert found.outcome == "not-applicable"
    assert "[[effect]]" in found.reason
