"""A session: from plan to judgement, again from files alone, and what it says of places that cannot be written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.baseline import load_baseline
from harness.checks import Verdict
from harness.errors import HarnessError, RecordError, UnavailableError
from harness.faults.base import At
from harness.faults.kill import Kill
from harness.plan import Expect, Plan, make_plan
from harness.run import Session, recheck
from harness.scenario import Effect, load_scenario
from harness.scenario.workloads import script_of
from harness.wire import EFFECTS_JSON, VERDICTS_JSON

SCENARIO = """
title = "rank 1 is killed and the job resumes"
workload = "ddp_mlp"
steps = 12
max_restarts = 1
fault = [{ kind = "kill", rank = 1, at = { step = 7, phase = "backward" } }]
[expect]
outcome = "recovers"
resume_step = 5
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    path = tmp_path_factory.mktemp("scenario") / "kill.toml"
    path.write_text(SCENARIO)
    return make_plan(load_scenario(path), device="cpu")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def session(store: Path) -> Iterator[Session]:
    with Session(store, store / "runs") as session:
        yield session


def test_a_run_is_judged_and_can_be_judged_again_elsewhere(session: Session, plan: Plan, tmp_path: Path) -> None:
    result = session.run(plan)
    assert result.judgement.outcome == "passed", result.judgement.headline
    assert json.loads((result.run_dir / VERDICTS_JSON).read_text())["outcome"] == "passed"
    moved = tmp_path / "elsewhere"
    shutil.copytree(result.run_dir, moved)
    assert [v.to_json() for v in recheck(moved).verdicts] == [v.to_json() for v in result.judgement.verdicts]


def test_no_fault_free_run_is_made_where_nothing_is_judged_by_it(session: Session, plan: Plan) -> None:
    run_dir = session.run(replace(plan, guarantees=("NothingLeft",))).run_dir
    assert load_baseline(run_dir) is None
    assert load_baseline(session.run(replace(plan, guarantees=("NothingLeft", "SamplesOnce"))).run_dir) is not None


def test_side_effects_are_read_after_the_end_and_judged_again_from_files(
    session: Session, plan: Plan, tmp_path: Path
) -> None:
    script = script_of("sqlite_metrics", None)
    effect = Effect(database="{checkpoints}.sqlite", table="metrics", key=("run_id", "step"), ignore=("launch",))
    run_dir = session.run(replace(plan, script=str(script), effects=(effect,))).run_dir
    moved = tmp_path / "elsewhere"
    shutil.copytree(run_dir, moved)
    (run_dir / "checkpoints.sqlite").unlink()
    assert effects_once(moved).outcome == effects_once(run_dir).outcome == "valid"
    rows = json.loads((moved / EFFECTS_JSON).read_text())
    rows[0]["rows"].append(rows[0]["rows"][6])
    (moved / EFFECTS_JSON).write_text(json.dumps(rows))
    assert (effects_once(moved).outcome, effects_once(moved).step) == ("invalid", 7)
    (moved / EFFECTS_JSON).unlink()
    assert effects_once(moved).outcome == "unknown"


def effects_once(run_dir: Path) -> Verdict:
    (found,) = [verdict for verdict in recheck(run_dir).verdicts if verdict.guarantee == "EffectsOnce"]
    return found


def test_the_same_plan_twice_has_two_run_directories(session: Session, plan: Plan) -> None:
    assert session.run(plan).run_dir != session.run(plan).run_dir


def test_a_record_that_is_tampered_with_is_found_on_recheck(session: Session, plan: Plan) -> None:
    run_dir = session.run(plan).run_dir
    record = run_dir / "rank-1" / "events-1.jsonl"
    lines = record.read_text().splitlines()
    (at,) = [i for i, line in enumerate(lines) if '"kind":"update","step":9,' in line]
    lines[at] = lines[at].replace('"params":"', '"params":"00')
    record.write_text("\n".join(lines) + "\n")
    judgement = recheck(run_dir)
    assert judgement.outcome == "failed"
    (replicas,) = [v for v in judgement.verdicts if v.guarantee == "ReplicasAgree"]
    assert (replicas.outcome, replicas.rank, replicas.step) == ("invalid", 1, 9)


def test_a_record_that_was_cut_off_blames_nobody(session: Session, plan: Plan) -> None:
    run_dir = session.run(plan).run_dir
    record = run_dir / "rank-1" / "events-1.jsonl"
    lines = record.read_text().splitlines(keepends=True)
    record.write_text("".join(lines[: len(lines) // 2]))
    judgement = recheck(run_dir)
    assert judgement.outcome == "unknown", judgement.headline
    assert not [v for v in judgement.verdicts if v.outcome == "invalid"]


def test_a_disarmed_run_is_unknown(session: Session, plan: Plan) -> None:
    judgement = session.run(replace(plan, faults=(), disarmed=True)).judgement
    assert judgement.outcome == "unknown"


def test_a_fault_that_never_fires_is_unknown(session: Session, plan: Plan) -> None:
    judgement = session.run(replace(plan, faults=(Kill(rank=1, at=At(step=99)),))).judgement
    assert judgement.outcome == "unknown"
    assert "did not fire" in judgement.headline


def test_missing_gpus_are_told_before_anything_is_started(session: Session, plan: Plan) -> None:
    with pytest.raises(UnavailableError, match="missing"):
        session.run(replace(plan, device="gpu", ranks=1000, faults=(), expect=Expect(outcome="clean")))


def test_a_store_under_a_file_is_refused_with_the_cure(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with Session(tmp_path / "file", tmp_path / "file" / "runs") as session, pytest.raises(RecordError) as refused:
        session.run(plan)
    assert "--chaos-store" in str(refused.value)


@pytest.fixture(params=["size=40k", "ro"])
def mounted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "mounted"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", request.param, "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a tmpfs needs root; run as root or in a container that allows it")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_or_read_only_store_is_told(plan: Plan, mounted: Path) -> None:
    with Session(mounted, mounted / "runs") as session, pytest.raises(HarnessError) as refused:
        session.run(plan)
    assert "No space left" in str(refused.value) or "Read-only" in str(refused.value)
    assert str(mounted) in str(refused.value)


NOISY = """
import os
import random
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
ddp = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
shared = torch.tensor([random.random()])  # never seeded: another number in each run
dist.broadcast(shared, src=0)
for _ in range(4):
    optimizer.zero_grad()
    (ddp(torch.ones(1, 8)).sum() * (1 + 1e-3 * shared.item())).backward()
    optimizer.step()
del ddp
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("tolerance", "outcome"),
    [
        pytest.param(None, "unknown", id="to the byte nothing can be said"),
        pytest.param(0.01, "valid", id="within a percent it ends alike"),
        pytest.param(1e-9, "invalid", id="within a billionth it does not"),
    ],
)
def test_a_script_that_does_not_repeat_itself_is_judged_by_its_tolerance(
    session: Session, tmp_path: Path, tolerance: float | None, outcome: str
) -> None:
    script = tmp_path / "noisy.py"
    script.write_text(NOISY)
    plan = Plan(name="noisy", script=str(script), ranks=2, expect=Expect(outcome="clean"), tolerance=tolerance)
    judgement = session.run(plan).judgement
    (end,) = [v for v in judgement.verdicts if v.guarantee == "EndsLikeBaseline"]
    assert end.outcome == outcome, end.reason
