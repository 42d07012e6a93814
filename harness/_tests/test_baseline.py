"""The fault-free twin: made once, kept as long as what it was made of, and honest about scripts that do not repeat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness._tests.histories import baseline
from harness._tests.launched import HEADER
from harness.baseline import FORMAT, RECHECK_EVERY, BaselineCache, compared, load_baseline, make_twin, write_baseline
from harness.faults.base import At
from harness.faults.kill import Kill
from harness.launch import Launcher
from harness.plan import Expect, Plan
from harness.wire import GENERATORS

TRAIN = """
import random
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
ddp = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    ddp(torch.ones(1, 4) {more}).sum().backward()
    optimizer.step()
del ddp
dist.destroy_process_group()
"""

Get = Callable[..., tuple[object, int]]


@pytest.fixture
def make_plan(tmp_path: Path) -> Callable[[str], Plan]:
    def make(more: str = "") -> Plan:
        script = tmp_path / "train.py"
        script.write_text(HEADER + TRAIN.format(more=more))
        fault = Kill(rank=1, at=At(step=2))
        return Plan(name="a", script=str(script), ranks=2, expect=Expect(outcome="recovers"), faults=(fault,))

    return make


class Launches:
    """Launches plans for real and counts them."""

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher
        self.count = 0

    def __call__(self, plan: Plan, run_dir: Path) -> None:
        self.count += 1
        self.launcher.launch(plan, run_dir, {"CUDA_VISIBLE_DEVICES": ""})


@pytest.fixture
def launch(warm_launcher: Launcher) -> Launches:
    return Launches(warm_launcher)


def test_a_twin_has_no_faults_and_begins_with_nothing() -> None:
    plan = Plan(
        name="a",
        script="s",
        ranks=2,
        expect=Expect(outcome="recovers"),
        faults=(Kill(rank=1),),
        max_restarts=3,
        start_from="/left",
        acknowledged=5,
    )
    twin = make_twin(plan)
    assert (twin.faults, twin.max_restarts, twin.expect.outcome) == ((), 0, "clean")
    assert (twin.start_from, twin.acknowledged) == (None, None)


def test_it_is_run_twice_and_then_kept(tmp_path: Path, make_plan: Callable[..., Plan], launch: Launches) -> None:
    cache = BaselineCache(tmp_path / "baselines")
    first = cache.get(make_plan(), launch)
    assert launch.count == 2
    assert first.repeatable
    assert set(first.updates) == {0, 1}
    assert list(first.updates[0]) == [1, 2, 3]
    assert first.starts.keys() == {0, 1}
    assert first.starts[0]["params"] != first.updates[0][1]["params"]
    assert first.final["params"] == first.updates[0][3]["params"]
    assert cache.get(replace(make_plan(), name="another", faults=(), launcher="torchrun"), launch) == first
    assert launch.count == 2


def test_a_changed_script_makes_it_anew(tmp_path: Path, make_plan: Callable[..., Plan], launch: Launches) -> None:
    cache = BaselineCache(tmp_path / "baselines")
    before = cache.get(make_plan(), launch)
    after = cache.get(make_plan("* 2"), launch)
    assert launch.count == 4
    assert before.final != after.final


def test_other_ranks_have_their_own(tmp_path: Path, make_plan: Callable[..., Plan], launch: Launches) -> None:
    cache = BaselineCache(tmp_path / "baselines")
    cache.get(make_plan(), launch)
    cache.get(replace(make_plan(), ranks=1), launch)
    assert launch.count == 4


def test_a_script_that_draws_without_a_seed_is_not_repeatable(
    tmp_path: Path, make_plan: Callable[..., Plan], launch: Launches
) -> None:
    baseline = BaselineCache(tmp_path / "baselines").get(make_plan("* random.random()"), launch)
    assert baseline.repeatable is False
    assert "two runs without faults differ in " in baseline.reason
    run_dir = Path(baseline.run_dir)
    assert [path.name for path in sorted(run_dir.parent.glob("run-*"))] == ["run-1", run_dir.name]


def test_a_generator_that_is_never_seeded_and_never_used_does_no_harm(
    tmp_path: Path, make_plan: Callable[..., Plan], launch: Launches
) -> None:
    baseline = BaselineCache(tmp_path / "baselines").get(make_plan(), launch)
    assert baseline.repeatable
    assert GENERATORS.keys().isdisjoint(baseline.updates[0][1])  # Python's differed from run to run


@pytest.mark.parametrize(
    ("draws", "parts"),
    [
        ("(torch.rand(1), 1)[1]", {"torch_random"}),
        ("(random.random(), torch.rand(1), 1)[2]", {"torch_random"}),
        ("(numpy.random.seed(0), 1)[1]", set()),
        ("(numpy.random.rand(), 1)[1]", {"numpy_random"}),
    ],
    ids=["of torch", "beside one that is not seeded", "of none", "of numpy"],
)
def test_generators_that_are_seeded_and_drawn_from_are_part_of_it(
    tmp_path: Path, make_plan: Callable[..., Plan], launch: Launches, draws: str, parts: set[str]
) -> None:
    plan = make_plan(f"* {draws}")
    Path(plan.script).write_text("import numpy; numpy.random.seed(0)\n" + Path(plan.script).read_text())
    baseline = BaselineCache(tmp_path / "baselines").get(plan, launch)
    assert baseline.repeatable
    assert {*baseline.updates[0][1]} & {*GENERATORS} == parts


@pytest.mark.parametrize(
    ("states", "is_part"),
    [
        ("abcdef", True),
        ("aaabbb", False),
        ("aabbcc", False),
        ("aaaaaa", False),
        ("abcccd", False),
        ("abccde", True),
    ],
    ids=["each update", "each pass", "now and then", "nothing", "some updates", "each update of a pass"],
)
def test_a_generator_is_part_of_it_if_each_update_draws_from_it(states: str, is_part: bool) -> None:
    """In passes of three updates. A DataLoader draws once a pass, from which nothing need come."""
    updates = {rank: {n: {"torch_random": state} for n, state in enumerate(states, 1)} for rank in range(2)}
    one = baseline(updates=updates, epochs={n: (n - 1) // 3 for n in range(1, 7)})
    found = compared(one, one).updates
    assert ("torch_random" in found[0][1], "torch_random" in found[1][6]) == (is_part, is_part)


def test_now_and_then_it_is_run_again(tmp_path: Path, make_plan: Callable[..., Plan], launch: Launches) -> None:
    cache = BaselineCache(tmp_path / "baselines")
    for _ in range(RECHECK_EVERY):
        cache.get(make_plan(), launch)
    assert launch.count == 2
    cache.get(make_plan(), launch)
    assert launch.count == 3


def test_what_is_kept_of_an_update_changes_with_the_format_alone(
    tmp_path: Path, make_plan: Callable[..., Plan], launch: Launches
) -> None:
    """Else one of an older version, without the new part, seems to differ from the run that it is compared with."""
    baseline = BaselineCache(tmp_path / "baselines").get(make_plan(), launch)
    kept = {15: {"params", "optimizer", "buffers", "scaler", "lr", *GENERATORS}}
    assert {FORMAT: {*baseline.updates[0][1]} | {*GENERATORS}} == kept


def test_a_twin_that_fails_says_why_there_is_nothing_to_compare(
    tmp_path: Path, make_plan: Callable[..., Plan], launch: Launches
) -> None:
    baseline = BaselineCache(tmp_path / "baselines").get(make_plan("/ no_such_name"), launch)
    assert "exit code 1; rank " in baseline.reason
    assert "NameError: name 'no_such_name' is not defined at " in baseline.reason
    assert list(Path(baseline.run_dir).glob("rank-*/stderr-0.txt"))
    assert baseline.repeatable is None
    assert launch.count == 1


def test_it_survives_the_run_directory(tmp_path: Path, make_plan: Callable[..., Plan], launch: Launches) -> None:
    baseline = BaselineCache(tmp_path / "baselines").get(make_plan(), launch)
    write_baseline(baseline, tmp_path)
    assert load_baseline(tmp_path) == baseline
    assert load_baseline(tmp_path / "baselines") is None
