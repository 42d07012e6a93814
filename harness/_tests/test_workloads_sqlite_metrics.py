"""sqlite_metrics: each effect stands once, whatever dies when."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from harness._tests.launched import Run
from harness._tests.workload_runs import Changes, Ran, run_workload
from harness.faults.base import At
from harness.faults.kill import Kill

# Saved after updates 5, 10, 15, 20: a job that dies in update 14 does 11, 12 and 13 again.
DIES_IN_14 = Kill(rank=0, at=At(step=14, phase="backward"))
SAMPLES = 16  # of an update: 2 ranks of 8
COUNTED = "            if written.rowcount == 1:\n"
DIES_BETWEEN = "            if launch == 0 and step == 13:\n                os.kill(os.getpid(), 9)\n"


def run_metrics(run: Run, tmp_path: Path, *faults: Kill, changes: Changes = (), max_restarts: int = 0) -> Ran:
    return run_workload(run, tmp_path, "sqlite_metrics", faults=faults, changes=changes, max_restarts=max_restarts)


def rows(ran: Ran, columns: str, table: str = "metrics") -> list[tuple[object, ...]]:
    database = sqlite3.connect(f"{ran.checkpoints}.sqlite")
    try:
        return [*database.execute(f"SELECT {columns} FROM {table} ORDER BY run_id, rowid")]
    finally:
        database.close()


def test_over_a_kill_each_update_has_one_row_and_counts_once(run: Run, tmp_path: Path) -> None:
    plain = run_metrics(run, tmp_path)
    killed = run_metrics(run, tmp_path, DIES_IN_14, max_restarts=1)
    assert killed.history.restarts == 1
    for ran in (plain, killed):
        assert rows(ran, "run_id, step, samples") == [("run", step, SAMPLES) for step in range(1, 21)]
        assert rows(ran, "*", "usage") == [("run", 20 * SAMPLES)]
    assert rows(killed, "loss") == rows(plain, "loss")
    assert rows(killed, "launch") == [(0,)] * 13 + [(1,)] * 7  # 11 to 13 were done again, and were there


@pytest.mark.parametrize(
    ("changes", "steps", "samples"),
    [
        pytest.param(
            [(", PRIMARY KEY (run_id, step)", "")], [*range(1, 14), 11, 12, 13, *range(14, 21)], 23, id="no key"
        ),
        pytest.param(
            [("PRIMARY KEY (run_id, step)", "PRIMARY KEY (run_id, step, launch)")],
            [*range(1, 14), 11, 12, 13, *range(14, 21)],
            23,
            id="a key for each launch",
        ),
        pytest.param([(COUNTED, "            if True:\n")], [*range(1, 21)], 23, id="a counter outside the key"),
    ],
)
def test_effects_that_happen_twice_are_seen(
    run: Run, tmp_path: Path, changes: Changes, steps: list[int], samples: int
) -> None:
    ran = run_metrics(run, tmp_path, DIES_IN_14, changes=changes, max_restarts=1)
    assert rows(ran, "step") == [(step,) for step in steps]
    assert rows(ran, "samples", "usage") == [(samples * SAMPLES,)]


def test_a_writer_that_dies_between_key_and_effect_has_written_neither(run: Run, tmp_path: Path) -> None:
    ran = run_metrics(run, tmp_path, changes=[(COUNTED, DIES_BETWEEN + COUNTED)], max_restarts=1)
    assert ran.history.restarts == 1
    assert rows(ran, "step, launch") == [(step, int(step >= 13)) for step in range(1, 21)]
    assert rows(ran, "samples", "usage") == [(20 * SAMPLES,)]


def test_a_key_and_an_effect_in_two_transactions_are_seen(run: Run, tmp_path: Path) -> None:
    commits = "            self.database.commit()\n"
    ran = run_metrics(run, tmp_path, changes=[(COUNTED, commits + DIES_BETWEEN + COUNTED)], max_restarts=1)
    assert rows(ran, "samples", "usage") == [(19 * SAMPLES,)]


def test_two_jobs_share_a_database_under_run_ids_of_their_own(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "shared.sqlite"
    for run_id in ("a", "b"):
        args = ("--database", str(file), "--run-id", run_id, "--steps", "3")
        run_workload(run, tmp_path, "sqlite_metrics", *args)
    database = sqlite3.connect(file)
    found = [*database.execute("SELECT run_id, step FROM metrics ORDER BY run_id, step")]
    database.close()
    assert found == [(run_id, step) for run_id in ("a", "b") for step in (1, 2, 3)]
