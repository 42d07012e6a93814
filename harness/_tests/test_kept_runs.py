"""What is pruned and, above all, what is not."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from harness.errors import RecordError
from harness.kept_runs import make_session_dir, prune, session_name


def add_run(session_dir: Path, name: str, outcome: str | None) -> Path:
    run_dir = session_dir / name
    (run_dir / "checkpoints" / "step-5").mkdir(parents=True)
    (run_dir / "plan.json").write_text("{}")
    if outcome:
        (run_dir / "verdicts.json").write_text(json.dumps({"outcome": outcome}))
    return run_dir


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Seven sessions, s1 the oldest; each has a run that passed."""
    for number in range(1, 8):
        add_run(make_session_dir(tmp_path / "store", f"s{number}", {}), "kill-cpu", "passed")
    return tmp_path / "store"


def sessions(store: Path) -> list[str]:
    return sorted(path.name for path in (store / "runs").iterdir())


def test_the_last_five_sessions_stay_with_all_they_have(store: Path) -> None:
    prune(store)
    assert sessions(store) == ["s3", "s4", "s5", "s6", "s7"]
    assert (store / "runs" / "s3" / "kill-cpu" / "checkpoints" / "step-5").is_dir()


@pytest.mark.parametrize(
    "outcome",
    [
        pytest.param("failed", id="a failed run"),
        pytest.param("unknown", id="a run that proved nothing"),
        pytest.param(None, id="a run without verdicts: still running, or broken off"),
    ],
)
def test_evidence_stays_for_ever(outcome: str | None, store: Path) -> None:
    kept = add_run(store / "runs" / "s1", "skip-cpu", outcome)
    prune(store)
    assert kept.is_dir()
    assert not (store / "runs" / "s1" / "kill-cpu").exists()


def test_what_is_not_ours_is_never_touched(store: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    runs = store / "runs"
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    theirs = add_run(elsewhere, "theirs", "passed")
    unmarked = add_run(runs / "a-directory-of-the-user", "kill-cpu", "passed")
    (runs / "s1" / "linked-run").symlink_to(theirs)
    (runs / "s0").symlink_to(elsewhere)
    (elsewhere / "session.json").write_text("{}")
    no_run = runs / "s1" / "notes"
    no_run.mkdir()
    (no_run / "verdicts.json").write_text('{"outcome": "passed"}')  # but no plan.json: not a run directory
    stray = runs / "s2" / "notes.txt"
    stray.write_text("mine")
    prune(store)
    assert theirs.is_dir()
    assert unmarked.is_dir()
    assert no_run.is_dir()
    assert stray.is_file()


def test_damaged_verdicts_are_no_permission_to_delete(store: Path) -> None:
    run_dir = add_run(store / "runs" / "s1", "torn-cpu", "passed")
    (run_dir / "verdicts.json").write_text('{"outcome": "pas')
    prune(store)
    assert run_dir.is_dir()


def test_the_store_hides_itself_from_git(store: Path) -> None:
    assert (store / ".gitignore").read_text() == "*\n"


def test_a_directory_that_was_there_before_keeps_its_own_git_settings(tmp_path: Path) -> None:
    make_session_dir(tmp_path, "s1", {})
    assert not (tmp_path / ".gitignore").exists()
    (tmp_path / ".gitignore").write_text("*.log\n")
    make_session_dir(tmp_path, "s2", {})
    assert (tmp_path / ".gitignore").read_text() == "*.log\n"


def test_names_sort_by_age_in_any_time_zone() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    later = (noon + timedelta(seconds=1)).astimezone(timezone(timedelta(hours=-5)))
    assert session_name(noon, 900) < session_name(later, 7)


def test_a_store_that_cannot_be_made_names_the_place_and_the_option(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where the directory should be")
    with pytest.raises(RecordError, match=r"runs/s1: cannot be written .*--chaos-store"):
        make_session_dir(tmp_path, "s1", {})
