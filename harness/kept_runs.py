"""Which runs stay on disk: all of the last sessions, and every run that did not pass.

    <store>/.gitignore                    "*", if the store was made here: it never shows in the user's repository
    <store>/runs/<session>/session.json   makes the directory ours; what is not marked so is never touched
    <store>/runs/<session>/report.json    every result of the session, and report.html, its page
    <store>/runs/<session>/<run>/         one run directory

A session's name starts with its time, so names sort by age.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.errors import RecordError
from harness.wire import PLAN_JSON, VERDICTS_JSON

KEPT_SESSIONS = 5
REPORT_JSON = "report.json"
REPORT_HTML = "report.html"
SESSION_JSON = "session.json"


def session_name(started: datetime, pid: int) -> str:
    """A name that sorts by time and that no other session of this machine has."""
    return f"{started.astimezone(UTC):%Y%m%d-%H%M%S}-{pid}"


def make_session_dir(store_dir: Path, name: str, about: dict[str, Any]) -> Path:
    """The directory of session ``name``; pytest workers of one session share it.

    Raises:
        RecordError: it cannot be written; names the directory and the option that moves it.
    """
    session_dir = store_dir / "runs" / name
    try:
        if not store_dir.exists():  # one that was there before is the user's, and so is what git sees of it
            store_dir.mkdir(parents=True, exist_ok=True)
            (store_dir / ".gitignore").write_text("*\n")
        session_dir.mkdir(parents=True, exist_ok=True)
        (session_dir / SESSION_JSON).write_text(json.dumps(about, indent=1) + "\n")
    except OSError as error:
        raise RecordError(
            f"{session_dir}: cannot be written ({error.strerror}); make room or rights, or set --chaos-store DIR"
        ) from error
    return session_dir


def prune(store_dir: Path, keep: int = KEPT_SESSIONS) -> list[Path]:
    """Delete the passed runs of all sessions but the last ``keep``; returns what was deleted.

    A run that failed, is unknown, or has no verdict yet (another pytest may be running it) stays until a person
    deletes it.
    """
    removed: list[Path] = []
    for session_dir in _sessions(store_dir)[:-keep]:
        for run_dir in sorted(_passed_runs(session_dir)):
            shutil.rmtree(run_dir, ignore_errors=True)  # an undeletable old run is no reason to fail today's session
            removed.append(run_dir)
        if {path.name for path in session_dir.iterdir()} <= {SESSION_JSON, REPORT_JSON, REPORT_HTML}:
            shutil.rmtree(session_dir, ignore_errors=True)
            removed.append(session_dir)
    return removed


def _sessions(store_dir: Path) -> list[Path]:
    return sorted(marker.parent for marker in (store_dir / "runs").glob(f"*/{SESSION_JSON}") if _is_ours(marker.parent))


def _passed_runs(session_dir: Path) -> Iterator[Path]:
    for verdicts in session_dir.glob(f"*/{VERDICTS_JSON}"):
        if _is_ours(verdicts.parent) and (verdicts.parent / PLAN_JSON).is_file() and _outcome(verdicts) == "passed":
            yield verdicts.parent


def _is_ours(directory: Path) -> bool:
    return directory.is_dir() and not directory.is_symlink()  # a link leads to somebody's else's files


def _outcome(verdicts: Path) -> Any:
    try:
        return json.loads(verdicts.read_text())["outcome"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
