"""Shrinking finds the planted minimum, and keeps its bounds; what is written is what was found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness._tests.chaos_ground import rich_ground
from harness.chaos.draw import draw
from harness.chaos.job import job_of
from harness.chaos.shrink import fewer_faults, plainer, shrink
from harness.chaos.write import write_scenario
from harness.errors import ScenarioError
from harness.faults import At, Fault
from harness.faults.corrupt_sample import CorruptSample
from harness.faults.exit import Exit
from harness.faults.flip_bit import FlipBit
from harness.faults.kill import Kill
from harness.faults.raise_ import Raise
from harness.faults.torn import Torn
from harness.plan import Expect
from harness.scenario import Effect, Gradient, Metric, Scenario, load_scenario
from harness.scenario.rules import problems

FIRST = Kill(rank="nonzero", at=At(step=9, phase="backward"), signal="SIGTERM")
SECOND = Torn(rank=0, at=At(step=10, failpoint="ckpt.complete.write", restart=1), fraction=0.1)
THIRD = FlipBit(rank=3, at=At(step=11, restart=2), bit=30)


def scenario(*faults: Fault, ranks: int = 4, max_restarts: int = 2) -> Scenario:
    return Scenario(
        workload="ddp_mlp",
        ranks=ranks,
        steps=20,
        save_every=5,
        max_restarts=max_restarts,
        fault=faults,
        expect=Expect(outcome="guaranteed"),
    )


ALL_THREE = scenario(FIRST, SECOND, THIRD)


def has(kind: str, from_step: int = 1) -> Callable[[Scenario], bool]:
    return lambda s: any(fault.kind == kind and (fault.at.step or 0) >= from_step for fault in s.faults)


MINIMA: dict[str, tuple[Callable[[Scenario], bool], Scenario]] = {
    "a job that fails without any fault": (
        lambda _: True,
        scenario(ranks=2, max_restarts=0).model_copy(update={"steps": 1}),
    ),
    "a kill anywhere": (
        has("kill"),
        scenario(Kill(rank=1, at=At(step=1, phase="backward")), ranks=2, max_restarts=0).model_copy(
            update={"steps": 1}
        ),
    ),
    "a kill from update 4 on": (
        has("kill", 4),
        scenario(Kill(rank=1, at=At(step=4, phase="backward")), ranks=2, max_restarts=0).model_copy(
            update={"steps": 4}
        ),
    ),
    "a torn save, which is at the end or a multiple of save_every": (
        has("torn"),
        scenario(Torn(rank=0, at=At(step=5, failpoint="ckpt.complete.write")), ranks=2, max_restarts=0).model_copy(
            update={"steps": 5}
        ),
    ),
    "a flipped bit where three ranks are": (
        lambda s: has("flip_bit")(s) and s.ranks >= 3,
        scenario(FlipBit(rank=2, at=At(step=1)), ranks=3, max_restarts=0).model_copy(update={"steps": 1}),
    ),
    "a kill and, in the next launch, a torn save": (
        lambda s: has("kill")(s) and any(f.kind == "torn" and f.at.restart == 1 for f in s.faults),
        scenario(
            Kill(rank=1, at=At(step=1, phase="backward")),
            Torn(rank=0, at=At(step=5, failpoint="ckpt.complete.write", restart=1)),
            ranks=2,
            max_restarts=1,
        ).model_copy(update={"steps": 5}),
    ),
}


@pytest.mark.parametrize("name", MINIMA)
def test_the_planted_minimum_is_found(name: str) -> None:
    fails, minimum = MINIMA[name]
    assert fails(ALL_THREE)
    found = shrink(ALL_THREE, fails)
    assert found.model_dump() == minimum.model_dump()


def test_each_fault_alone_is_tried_first_then_a_plain_kill_then_pairs_and_ranks_last() -> None:
    asked: list[Scenario] = []

    def never(candidate: Scenario) -> bool:
        asked.append(candidate)
        return False

    shrink(ALL_THREE, never)
    kinds = [[fault.kind for fault in candidate.faults] for candidate in asked[:9]]
    alone = [[], ["kill"], ["torn"], ["flip_bit"], ["kill"], ["kill"]]
    assert kinds == [*alone, ["kill", "torn"], ["kill", "flip_bit"], ["torn", "flip_bit"]]
    assert [candidate.faults[0].at.step for candidate in asked[4:6]] == [9, 10]  # of the kill, made plain; of the torn
    assert {len(candidate.faults) for candidate in asked[9:]} == {3}


def test_of_faults_none_of_which_alone_will_do_one_plain_kill_is_left_if_that_does() -> None:
    """What it takes is a rank that is gone in the middle of an update: a torn save alone is no such thing."""

    def fails(candidate: Scenario) -> bool:
        ends = [fault for fault in candidate.faults if fault.at.phase == "backward" and fault.kind in ("kill", "exit")]
        return any(fault.kind == "kill" for fault in ends) or len(candidate.faults) == 3

    found = shrink(scenario(Exit(rank=1, at=At(step=9, phase="forward")), SECOND, THIRD), fails)
    assert [(fault.kind, fault.rank) for fault in found.faults] == [("kill", 1)]


def test_what_a_smaller_job_does_not_need_is_taken_out_at_the_end() -> None:
    found = shrink(ALL_THREE, lambda s: len(s.faults) == 3 if s.ranks > 2 else has("torn")(s))
    assert (found.ranks, [fault.kind for fault in found.faults]) == (2, ["torn"])


def test_faults_are_not_tried_apart_again_with_each_step_that_makes_the_job_smaller() -> None:
    num_asked = 0

    def fails(candidate: Scenario) -> bool:
        nonlocal num_asked
        num_asked += 1
        return len(candidate.faults) == 3

    shrink(ALL_THREE, fails)
    assert num_asked < 40


def test_what_cannot_be_made_smaller_stays_and_no_time_means_no_run() -> None:
    assert shrink(ALL_THREE, lambda _: False) is ALL_THREE
    assert shrink(ALL_THREE, lambda _: pytest.fail("it was run"), lambda: False) is ALL_THREE


def test_only_what_may_be_run_is_tried_and_nothing_twice() -> None:
    asked: list[str] = []

    def fails(candidate: Scenario) -> bool:
        assert problems(candidate) == []
        asked.append(repr(candidate))
        return len(candidate.faults) == 2

    shrink(ALL_THREE, fails)
    assert len(asked) == len(set(asked))
    assert all(candidate != ALL_THREE for candidate in (*fewer_faults(ALL_THREE), *plainer(ALL_THREE)))


def test_what_is_written_is_read_back_as_the_same(tmp_path: Path) -> None:
    for number in range(60):
        drawn = draw(1, number, rich_ground)
        path = write_scenario(drawn, tmp_path, f"plan {number}", ["why it is here: “ä\n# ”"])
        assert load_scenario(path).model_dump() == drawn.model_dump(), path.read_text()


def test_a_name_that_is_taken_by_another_scenario_gets_a_number_and_the_same_one_is_written_once(
    tmp_path: Path,
) -> None:
    one = scenario(CorruptSample(rank=0, at=At(step=2)))
    two = scenario(Raise(rank=0, at=At(step=2), message='say "no"\tand \\ \x7f ä'))
    paths = [write_scenario(each, tmp_path, "found/it", []) for each in (one, two, one)]
    assert [path.name for path in paths] == ["found_it.toml", "found_it_2.toml", "found_it.toml"]
    assert load_scenario(paths[1]).faults == two.faults


def test_what_cannot_be_written_is_an_error_that_says_where(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ScenarioError, match="--chaos-out"):
        write_scenario(ALL_THREE, blocked / "in", "x", [])


def test_what_a_user_says_of_a_job_is_written_too_with_paths_as_seen_from_the_file(tmp_path: Path) -> None:
    mine, found = tmp_path / "mine", tmp_path / "found" / "here"
    mine.mkdir()
    for name in ("train.py", "truth.py", "losses.py"):
        (mine / name).touch()
    job = Scenario(
        workload=str(mine / "train.py"),
        args=("--out", "{checkpoints}"),
        env={"MODE": 'say "it"', "2": ""},
        metric=Metric(reported=r"accuracy (\d+)", reference=str(mine / "truth.py")),
        gradient=Gradient(losses=str(mine / "losses.py"), updates=(2, 3), clip_norm=1.0),
        effect=(
            Effect(lines="{run_dir}/x.jsonl", key=("step", "name")),
            Effect(database="{checkpoints}/y", table="t", key=("step",)),
        ),
        fault=(FIRST,),
        max_restarts=1,
        expect=Expect(outcome="guaranteed"),
    )
    path = write_scenario(job, found, "mine", [])
    again = load_scenario(path)
    assert again.workload == "../../mine/train.py"
    assert (again.script, again.losses_path, again.reference_path) == (job.script, job.losses_path, job.reference_path)
    names = ("args", "env", "effects", "faults")
    assert [getattr(again, name) for name in names] == [getattr(job, name) for name in names]
    assert job_of(again) == job_of(job)
