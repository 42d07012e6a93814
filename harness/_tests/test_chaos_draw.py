"""Plans of chaos: the same seed gives the same, on any shard, and each may be run and can fire."""

from __future__ import annotations

import itertools
import json
from collections import Counter

import pytest

from harness._tests.chaos_ground import ground, rich_ground
from harness.chaos.budget import numbers
from harness.chaos.draw import draw
from harness.chaos.job import Ground, Job, workloads
from harness.chaos.place import phase_of
from harness.faults import KINDS
from harness.scenario import Scenario
from harness.scenario.rules import problems
from harness.wire import PHASES

MANY = 400
DRAWN = [draw(3, number, rich_ground) for number in range(MANY)]


def test_the_same_seed_and_number_are_the_same_plan_whatever_was_drawn_before() -> None:
    assert [draw(3, number, rich_ground) for number in (7, 0, 399)] == [DRAWN[7], DRAWN[0], DRAWN[399]]


def test_seeds_differ_and_so_do_the_numbers_of_one() -> None:
    other = [draw(4, number, rich_ground) for number in range(20)]
    assert not any(one.faults == two.faults for one, two in zip(DRAWN, other, strict=False))
    assert len({json.dumps(_told(scenario), sort_keys=True) for scenario in DRAWN}) > 0.98 * MANY


def _told(scenario: Scenario) -> dict[str, object]:
    return scenario.model_dump(exclude={"title"}, mode="json")


@pytest.mark.parametrize("num_shards", [1, 2, 3, 7])
def test_shards_partition_the_plans(num_shards: int) -> None:
    shards = [list(itertools.islice(numbers(shard, num_shards), 42)) for shard in range(1, num_shards + 1)]
    assert sorted(itertools.chain(*shards)) == list(range(42 * num_shards))


def test_every_plan_keeps_the_rules_of_scenario_files_and_has_a_fault() -> None:
    for scenario in DRAWN:
        assert problems(scenario) == []
        assert scenario.faults
        assert scenario.expect.outcome == "guaranteed"


def test_every_kind_every_workload_and_several_faults_at_once_are_drawn() -> None:
    kinds = Counter(fault.kind for scenario in DRAWN for fault in scenario.faults)
    assert set(kinds) == set(KINDS)
    assert {scenario.workload for scenario in DRAWN} == set(workloads())
    assert {scenario.ranks for scenario in DRAWN} == {2, 3, 4}
    assert {len(scenario.faults) for scenario in DRAWN} >= {1, 2, 3}
    assert {fault.at.restart for scenario in DRAWN for fault in scenario.faults} == {0, 1, 2}


def test_the_phases_of_a_training_are_covered() -> None:
    phases = {phase_of(fault, rich_ground(_job(scenario))) for scenario in DRAWN for fault in scenario.faults}
    assert phases == {*PHASES, "unscale"} - {"eval"}  # which not every job passes


def _job(scenario: Scenario) -> Job:
    return Job(workload=scenario.workload, ranks=scenario.ranks, steps=scenario.steps, save_every=scenario.save_every)


def test_what_a_script_does_not_have_is_not_acted_on() -> None:
    kinds = {fault.kind for number in range(MANY) for fault in draw(3, number, ground, "lm_tokens").faults}
    assert kinds == set(KINDS) - {"skip_unscale", "drift_buffer", "nan_batch"}


def test_a_launch_is_ended_once_and_nothing_is_planned_after_its_end() -> None:
    for scenario in DRAWN:
        for restart in range(scenario.max_restarts + 1):
            here = [fault for fault in scenario.faults if fault.at.restart == restart]
            ends = [fault for fault in here if fault.ends_launch != "never"]
            assert len(ends) <= 1, scenario.title
            for fault in here:
                last = ends[0].at.step if ends else None
                assert fault in ends or last is None or (fault.at.step or 0) < last, scenario.title


def test_no_fault_waits_for_a_launch_that_never_comes() -> None:
    for scenario in DRAWN:
        ended = {fault.at.restart for fault in scenario.faults if fault.ends_launch == "always"}
        for fault in scenario.faults:
            assert set(range(fault.at.restart)) <= ended, scenario.title


def test_a_collective_that_is_drawn_is_on_record() -> None:
    for scenario in DRAWN:
        here = rich_ground(_job(scenario))
        for fault in scenario.faults:
            if fault.at.collective is not None and fault.at.step is not None:
                for rank in fault.targets(scenario.ranks):
                    assert fault.at.collective <= here.num_collectives(rank, fault.at.step)


def test_an_overflow_is_not_drawn_where_one_may_come_by_itself() -> None:
    def after_an_overflow(job: Job) -> Ground:
        return ground(job, scaler="[[65536.0, 0]]")

    def counting(job: Job) -> Ground:
        return ground(job, scaler="[[65536.0, 3]]")

    kinds = [
        {fault.kind for n in range(MANY) for fault in draw(3, n, on).faults} for on in (after_an_overflow, counting)
    ]
    assert ["overflow" in drawn for drawn in kinds] == [False, True]


def test_what_a_restart_may_send_otherwise_is_replaced_only_by_what_acts_on_any_call() -> None:
    later = {fault.kind for scenario in DRAWN for fault in scenario.faults if fault.at.restart and fault.at.collective}
    assert later
    assert later.isdisjoint({"change_reduction", "retype_collective", "swap_collective", "corrupt_collective"})


def test_where_gradients_accumulate_none_is_spoiled_as_if_it_were_reduced() -> None:
    drawn = [fault for n in range(MANY) for fault in draw(3, n, ground, "lm_tokens").faults if fault.kind == "overflow"]
    assert {fault.gradient for fault in drawn} == {"local"}  # type: ignore[attr-defined]
