"""Plans of chaos: the same seed gives the same, on any shard, and each may be run and can fire."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from harness._tests.chaos_ground import ground, rich_ground, saved
from harness.chaos import draw as chaos_draw
from harness.chaos.budget import numbers
from harness.chaos.draw import _failpoint, draw, rng_of
from harness.chaos.job import Ground, JobSource, job_of, make_job, workloads
from harness.chaos.place import phase_of
from harness.errors import ScenarioError
from harness.faults import KINDS, At, Fault
from harness.faults.corrupt_sample import CorruptSample
from harness.faults.damage_file import DamageFile
from harness.faults.kill import Kill
from harness.faults.move_latest import MoveLatest
from harness.scenario import Scenario, load_scenario
from harness.scenario.rules import problems
from harness.wire import PHASES

MANY, FEWER = 1000, 400  # enough for each kind, and for each of the usual ones
FILES = {"damage_file", "move_latest"}
TOKENS = JobSource(workload="lm_tokens")
DRAWN = [draw(3, number, rich_ground) for number in range(MANY)]


def test_the_same_seed_and_number_are_the_same_plan_whatever_was_drawn_before() -> None:
    assert [draw(3, number, rich_ground) for number in (7, 0, 999)] == [DRAWN[7], DRAWN[0], DRAWN[999]]


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
    phases = {phase_of(fault, rich_ground(job_of(scenario))) for scenario in DRAWN for fault in scenario.faults}
    assert phases == {*PHASES, "unscale"} - {"eval"}  # which not every job passes


def test_what_a_script_does_not_have_is_not_acted_on() -> None:
    kinds = {fault.kind for number in range(MANY) for fault in draw(3, number, ground, TOKENS).faults}
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


@pytest.mark.parametrize(("restart", "is_acted_on"), [(0, True), (1, False)])
def test_where_the_oldest_checkpoint_goes_is_acted_on_in_a_first_launch_alone(restart: int, is_acted_on: bool) -> None:
    here, rng = rich_ground(make_job(workload="ddp_mlp", ranks=2, steps=8, save_every=2)), rng_of(3, 0)
    at = [_failpoint(rng, [8], here, restart, is_torn=False) for _ in range(FEWER)]
    assert any(".retention." in str(place and place.failpoint) for place in at) == is_acted_on


RETIRING, PUBLISHING = ("ckpt.retention.rename:before", "ckpt.publish.rename:before")


@pytest.mark.parametrize(
    ("early", "failpoint", "may_come"),
    [
        pytest.param(DamageFile(rank=0, at=At(step=5, phase="forward"), file="model.pt"), RETIRING, False, id="damage"),
        pytest.param(MoveLatest(rank=0, at=At(step=5, phase="forward")), RETIRING, False, id="latest moved"),
        pytest.param(MoveLatest(rank=0, at=At(step=5, phase="forward")), PUBLISHING, True, id="no end of an old one"),
        pytest.param(CorruptSample(rank=0, at=At(step=5)), RETIRING, True, id="a fault that touches no file"),
    ],
)
def test_nothing_is_damaged_before_the_end_of_a_launch_at_that_of_an_old_checkpoint(
    early: Fault, failpoint: str, may_come: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged one is not counted among those that are kept: none may have to go, and the end would never be met."""
    end = Kill(rank=0, at=At(step=8, failpoint=failpoint))
    monkeypatch.setattr(chaos_draw, "_draw_one", lambda _r, _g, _l, ends, **_: end if "always" in ends else early)
    here = rich_ground(make_job(workload="ddp_mlp", ranks=2, steps=8, save_every=2))
    drawn = [[*chaos_draw._faults(rng_of(3, n), here, 0, 1)] for n in range(100)]
    assert all(faults[-1] is end for faults in drawn)
    assert any(early in faults for faults in drawn) == may_come


def test_files_are_damaged_while_no_rank_writes_any() -> None:
    at = [(fault.at.step or 0, job_of(plan)) for plan in DRAWN for fault in plan.faults if fault.kind in FILES]
    assert at
    assert not [step for step, job in at if step - 1 in saved(job)]


def test_no_batch_is_to_be_repeated_where_an_earlier_fault_may_have_moved_the_epochs() -> None:
    faults = [scenario.faults for scenario in DRAWN if any(fault.kind == "repeat_batch" for fault in scenario.faults)]
    assert faults
    for some in faults:
        first = next(fault for fault in some if fault.findings)
        assert first.kind == "repeat_batch"
        assert [fault.kind for fault in some].count("repeat_batch") == 1


def test_a_collective_that_is_drawn_is_on_record() -> None:
    for scenario in DRAWN:
        here = rich_ground(job_of(scenario))
        for fault in scenario.faults:
            if fault.at.collective is not None and fault.at.step is not None:
                for rank in fault.targets(scenario.ranks):
                    assert fault.at.collective <= here.num_collectives(rank, fault.at.step)


def test_where_an_overflow_may_come_by_itself_nothing_is_drawn_that_may_be_left_out_with_it() -> None:
    def after_an_overflow(job: Scenario) -> Ground:
        return ground(job, scaler="[[65536.0, 0]]")

    def counting(job: Scenario) -> Ground:
        return ground(job, scaler="[[65536.0, 3]]")

    kinds = [
        {fault.kind for n in range(FEWER) for fault in draw(3, n, on).faults} for on in (after_an_overflow, counting)
    ]
    in_an_attempt = {"overflow", "corrupt_sample", "nan_batch", "repeat_batch", "lose_batch", "skip_backward"}
    assert in_an_attempt.isdisjoint(kinds[0])
    assert in_an_attempt & kinds[1] >= {"overflow", "corrupt_sample"}
    assert {"flip_bit", "stalled_read"} <= kinds[0]


def test_what_a_restart_may_send_otherwise_is_replaced_only_by_what_acts_on_any_call() -> None:
    later = {fault.kind for scenario in DRAWN for fault in scenario.faults if fault.at.restart and fault.at.collective}
    assert later
    assert later.isdisjoint({"change_reduction", "retype_collective", "swap_collective", "corrupt_collective"})


@pytest.mark.parametrize(
    ("scaler", "number", "may_come"),
    [
        ("[[65536.0, 3]]", 2, [2]),
        ("[[65536.0, 0]]", 1, [1, 3]),
        ("[[65536.0, 0]]", 2, [1, 2, 3, 4]),
        ("[[65536.0, 0]]", 4, [2, 4]),
    ],
    ids=["phases follow each other", "the first of each", "any", "the last of each"],
)
def test_where_attempts_take_turns_the_place_of_a_call_is_not_known(
    scaler: str, number: int, may_come: list[int]
) -> None:
    job = make_job(workload="mixed_precision", ranks=2, steps=8, save_every=5)
    usual = ground(job, scaler=scaler).baseline
    sent = {0: {1: {"backward": [["all_reduce"]] * 2, "forward": [["broadcast"]] * 2}}}
    assert Ground(job=job, baseline=replace(usual, collectives=sent)).may_come(0, 1, number) == may_come


def test_where_gradients_accumulate_none_is_spoiled_as_if_it_were_reduced() -> None:
    drawn = [fault for n in range(FEWER) for fault in draw(3, n, ground, TOKENS).faults if fault.kind == "overflow"]
    assert {fault.gradient for fault in drawn} == {"local"}  # type: ignore[attr-defined]


# -- a job of the user's -------------------------------------------------------------------------------------------


def own_job(tmp_path: Path, text: str = "", expected: str = "") -> Scenario:
    """That of a scenario file, in which a script of the user's stands."""
    (tmp_path / "train.py").touch()
    (tmp_path / "losses.py").touch()
    file = tmp_path / "mine.toml"
    file.write_text(
        'workload = "train.py"\nranks = 3\nsteps = 9\nmax_restarts = 2\nargs = ["--out", "{checkpoints}"]\n'
        f'env = {{ MODE = "fast" }}\n{text}\n[[fault]]\nkind = "kill"\nrank = 0\nat = {{ step = 3 }}\n'
        f'[gradient]\nlosses = "losses.py"\n[expect]\noutcome = "recovers"\n{expected}\n'
    )
    return job_of(load_scenario(file))


def test_the_job_of_a_scenario_file_is_what_it_trains_and_nothing_else(tmp_path: Path) -> None:
    job = own_job(tmp_path)
    assert (job.faults, job.max_restarts, job.expect.outcome) == ((), 0, "guaranteed")
    assert (job.ranks, job.planned_steps, job.planned_save_every) == (3, 9, None)
    assert (job.args, job.env) == (("--out", "{checkpoints}"), {"MODE": "fast"})
    assert job.script == tmp_path / "train.py"
    assert job.losses_path == tmp_path / "losses.py"
    assert job_of(job) == job


def test_a_job_that_begins_with_what_a_crash_left_is_refused(tmp_path: Path) -> None:
    (tmp_path / "left").mkdir()
    with pytest.raises(ScenarioError, match=r"mine\.toml: start_from: .* take the line out"):
        own_job(tmp_path, 'start_from = "left"', "resume_step = 1")


def test_only_what_the_records_show_of_a_script_is_acted_on(tmp_path: Path) -> None:
    """It saves by other code than the checkpoint store, so that no point of a save has a name, nor has a load."""
    job = own_job(tmp_path)

    def foreign(job: Scenario) -> Ground:
        usual = ground(job).baseline
        phases = {"backward": [1, 2, 3], "eval": [4]}
        return Ground(job=job, baseline=replace(usual, saves={}, foreign_saves=usual.saves, phases=phases))

    plans = [draw(3, number, foreign, JobSource(only=job)) for number in range(FEWER)]
    faults = [fault for plan in plans for fault in plan.faults]
    assert {plan.workload for plan in plans} == {job.workload}
    assert {fault.at.phase for fault in faults} == {None, "backward", "eval", "init"}
    assert {fault.at.step for fault in faults if fault.at.phase == "eval"} == {4}
    lasting = [fault for fault in faults if fault.kind == "straggle"]
    assert {(fault.at.step, fault.at.phase) for fault in lasting} == {(1, "backward"), (2, "backward")}
    assert not [fault for fault in faults if fault.at.failpoint or fault.level == "storage"]
    assert {"torn", "skip_save", "skip_load", "damage_file"}.isdisjoint(fault.kind for fault in faults)
    assert all(problems(plan) == [] for plan in plans)


def test_updates_that_a_job_promises_and_does_not_make_are_acted_on() -> None:
    def stops_short(job: Scenario) -> Ground:
        usual = ground(job).baseline
        made = {
            rank: {step: state for step, state in done.items() if step <= 4} for rank, done in usual.updates.items()
        }
        return Ground(job=job, baseline=replace(usual, updates=made))

    steps = {fault.at.step for number in range(100) for fault in draw(3, number, stops_short).faults}
    assert 8 in steps
