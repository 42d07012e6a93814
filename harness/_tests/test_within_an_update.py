"""A job that saves between two micro-batches of an update, and what it may forget there."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness._tests.launched import Run
from harness.baseline import make_baseline
from harness.checks import GUARANTEES
from harness.faults.base import At, Fault
from harness.faults.kill import Kill
from harness.history import History
from harness.wire import Kind

SCRIPT = Path(__file__).parents[2] / "scenarios" / "regression" / "saves_within_an_update.py"
KILL = Kill(rank=1, at=At(step=8, phase="backward"))
GRADIENTS = "        parameter.grad = gradient\n"
PLACE = "divmod(step * WINDOW + done, len(loader))"


def train(run: Run, tmp_path: Path, *faults: Fault, change: tuple[str, str] = ("", "")) -> History:
    old, new = change
    source = SCRIPT.read_text()
    assert not old or source.count(old) == 1
    script = tmp_path / "changed.py"
    script.write_text(source.replace(old, new) if old else source)
    checkpoints = tmp_path / f"checkpoints-{len([*tmp_path.iterdir()])}"
    history = run("", *faults, script=str(script), args=(str(checkpoints),), max_restarts=len(faults))
    assert history.outcome.exit_code == 0
    return history


def test_the_samples_before_and_after_the_save_are_those_of_one_update(run: Run, tmp_path: Path) -> None:
    history = train(run, tmp_path, KILL)
    whole = make_baseline(train(run, tmp_path))
    saves = [e.data["pending"] for e in history.of(Kind.SAVE_START, rank=0, restart=0)]
    updates = [[e.data["ids"] for e in history.of(Kind.UPDATE, rank=0, restart=r) if e.step == 6] for r in (0, 1)]
    assert [len(ids) for ids in saves] == [8]
    assert updates[0] == updates[1]
    assert updates[0][0][:8] == saves[0]
    passes = [[e.phase for e in history.of(Kind.PHASE, rank=0, restart=r) if e.step == 6] for r in (0, 1)]
    assert [phases.count("backward") for phases in passes] == [4, 2]
    for name in ("RollbackExact", "ReplayIdentical", "SamplesOnce", "EndsLikeBaseline", "ReplicasAgree"):
        assert GUARANTEES[name].check(history, whole).outcome == "valid", name


@pytest.mark.parametrize(
    ("change", "name"),
    [
        pytest.param((GRADIENTS, "        pass\n"), "ReplayIdentical", id="the gradients so far"),
        pytest.param((PLACE, "divmod(step * WINDOW, len(loader))"), "SamplesOnce", id="how far the update was"),
    ],
)
def test_what_is_not_restored_of_an_unfinished_update_is_found_there(
    run: Run, tmp_path: Path, change: tuple[str, str], name: str
) -> None:
    whole = make_baseline(train(run, tmp_path, change=change))
    found = GUARANTEES[name].check(train(run, tmp_path, KILL, change=change), whole)
    assert (found.outcome, found.step, found.restart) == ("invalid", 6, 1)
