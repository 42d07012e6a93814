"""Side effects are read once the job has ended, whatever state they are in, and nothing is changed where they are."""

from __future__ import annotations

import math
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.effects import Found, in_common, load_effects, read_effects, write_effects
from harness.errors import RecordError
from harness.scenario import Effect
from harness.wire import EFFECTS_JSON

TABLE = Effect(database="{run_dir}/m.sqlite", table="metrics", key=("run", "step"))
LINES = Effect(lines="{run_dir}/m.jsonl", key=("step",))

DIES_IN_A_TRANSACTION = """
import os, sqlite3, sys
database = sqlite3.connect(sys.argv[1])
database.execute("PRAGMA cache_size = 1")  # so that pages of the transaction are in the file before it is done
with database:
    database.executemany("INSERT INTO metrics VALUES ('a', ?, ?)", [(step, "x" * 2000) for step in range(2, 200)])
    os._exit(9)
"""


def make_database(run_dir: Path, *rows: tuple[object, ...], more: str = "") -> Path:
    path = run_dir / "m.sqlite"
    database = sqlite3.connect(path)
    database.executescript(f"{more}; CREATE TABLE metrics (run TEXT, step INTEGER, loss);")
    with database:
        database.executemany("INSERT INTO metrics VALUES (?, ?, ?)", rows)
    database.close()
    return path


def read(effect: Effect, run_dir: Path) -> Found:
    (found,) = read_effects([effect], run_dir)
    return found


def test_a_table_is_read_in_its_order_with_every_column(tmp_path: Path) -> None:
    make_database(tmp_path, ("a", 2, 0.5), ("a", 1, None), ("a", 2, b"\x01"), ("a", 3, bytes(65)))
    found = read(TABLE, tmp_path)
    assert [(row["run"], row["step"], row["loss"]) for row in found.rows[:3]] == [
        ("a", 2, 0.5),
        ("a", 1, None),
        ("a", 2, "x'01'"),
    ]
    assert found.rows[3]["loss"].startswith("65 bytes, sha256 98ce42de")


def test_lines_are_read_in_their_order_and_empty_ones_passed_over(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text('{"step": 2, "loss": NaN}\n\n{"step": 1}\n')
    first, second = read(LINES, tmp_path).rows
    assert first["step"] == 2
    assert math.isnan(first["loss"])
    assert second == {"step": 1}


def test_what_a_killed_writer_left_half_done_is_rolled_back_in_the_copy_alone(tmp_path: Path) -> None:
    path = make_database(tmp_path, ("a", 1, 0.5))
    assert subprocess.run([sys.executable, "-c", DIES_IN_A_TRANSACTION, str(path)], check=False).returncode == 9
    files = {file: file.read_bytes() for file in tmp_path.iterdir()}
    assert len(files) == 2  # the database and its journal
    assert read(TABLE, tmp_path).rows == ({"run": "a", "step": 1, "loss": 0.5},)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == files


def test_what_stands_in_a_write_ahead_log_counts(tmp_path: Path) -> None:
    path = make_database(tmp_path, ("a", 1, 0.5), more="PRAGMA journal_mode = WAL")
    database = sqlite3.connect(path)
    with database:
        database.execute("INSERT INTO metrics VALUES ('a', 2, 0.25)")
    assert (tmp_path / "m.sqlite-wal").stat().st_size > 0
    assert [row["step"] for row in read(TABLE, tmp_path).rows] == [1, 2]
    database.close()


def test_a_database_that_someone_holds_locked_is_read_all_the_same(tmp_path: Path) -> None:
    database = sqlite3.connect(make_database(tmp_path, ("a", 1, 0.5)))
    database.execute("BEGIN EXCLUSIVE")
    assert len(read(TABLE, tmp_path).rows) == 1
    database.close()


def damaged(run_dir: Path) -> None:
    path = make_database(run_dir, ("a", 1, 0.5))
    path.write_bytes(b"no database at all, but longer than a header of one hundred bytes is" * 20)


UNREADABLE: dict[str, tuple[Effect, Callable[[Path], object], str]] = {
    "a database that is not there": (TABLE, lambda _: None, "there is no such file"),
    "a directory in its place": (TABLE, lambda run_dir: (run_dir / "m.sqlite").mkdir(), "there is no such file"),
    "a file that is no database": (TABLE, damaged, "file is not a database"),
    "a table that is not there": (
        Effect(database="{run_dir}/m.sqlite", table='met"rics', key=("step",)),
        make_database,
        'no such table: met"rics',
    ),
    "a key that is no column": (
        Effect(database="{run_dir}/m.sqlite", table="metrics", key=("run_id",)),
        lambda run_dir: make_database(run_dir, ("a", 1, 0.5)),
        "row 1 has no run_id; it has run, step, loss",
    ),
    "a line that was torn": (
        LINES,
        lambda run_dir: (run_dir / "m.jsonl").write_text('{"step": 1}\n{"step": 2, "lo'),
        'line 2 is no JSON object: b\'{"step": 2, "lo\'',
    ),
    "a line that is a number": (LINES, lambda run_dir: (run_dir / "m.jsonl").write_text("3\n"), "line 1 is no JSON"),
    "a line that is nested too deep": (
        LINES,
        lambda run_dir: (run_dir / "m.jsonl").write_text("[" * 100_000),
        "it cannot be read",
    ),
    "a line without its key": (
        LINES,
        lambda run_dir: (run_dir / "m.jsonl").write_text('{"step": 1}\n{"loss": 2}\n'),
        "row 2 has no step; it has loss",
    ),
}


@pytest.mark.parametrize(("effect", "make", "said"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_says_why(
    tmp_path: Path, effect: Effect, make: Callable[[Path], object], said: str
) -> None:
    make(tmp_path)
    found = read(effect, tmp_path)
    assert said in found.problem
    assert found.rows == ()


def test_they_are_kept_in_the_run_directory(tmp_path: Path) -> None:
    assert load_effects(tmp_path) == ()
    found = (Found(rows=({"step": 1, "loss": 0.1},)), Found(problem="there is no such file"))
    write_effects(found, tmp_path)
    assert load_effects(tmp_path) == found


@pytest.mark.parametrize("text", ["", "{}", '[{"rows": [1], "problem": ""}]', '[{"rows": []}]'])
def test_a_damaged_file_of_them_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / EFFECTS_JSON).write_text(text)
    if text == "{}":
        assert load_effects(tmp_path) == ()  # no place: the check says that they are missing
        return
    with pytest.raises(RecordError, match="run the scenario again"):
        load_effects(tmp_path)


def rows(*values: tuple[int, float, float]) -> Found:
    return Found(rows=tuple({"step": step, "loss": loss, "time_s": time_s} for step, loss, time_s in values))


def test_columns_that_differ_between_two_healthy_runs_are_no_promise() -> None:
    found = in_common(LINES, rows((1, 0.5, 7.0), (2, 0.25, 8.0)), rows((2, 0.25, 9.0), (1, 0.5, 7.0)))
    assert found.rows == ({"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25})
    assert len(found.varying) == 1


@pytest.mark.parametrize(
    ("other", "said"),
    [
        pytest.param(rows((1, 0.5, 7.0)), "step = [2] is in one of them", id="one has fewer"),
        pytest.param(rows((1, 0.5, 7.0), (2, 0.5, 8.0), (2, 0.5, 8.0)), "more than once", id="one has one twice"),
        pytest.param(Found(problem="there is no such file"), "there is no such file", id="one has none"),
    ],
)
def test_two_healthy_runs_that_write_other_effects_promise_nothing(other: Found, said: str) -> None:
    found = in_common(LINES, rows((1, 0.5, 7.0), (2, 0.25, 8.0)), other)
    assert said in found.problem
    assert found.rows == ()
