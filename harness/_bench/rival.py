"""Crash states a minute, beside the crash points a minute of ckpt-chaos on the same script.

ckpt-chaos runs the script and its resume anew for each point; here the script runs once. It is not a dependency: where
it is not installed the row says so and is not measured.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from harness._bench.row import Row
from harness.crashstates.examine import examine

SCRIPT = Path(__file__).parent / "three_saves.py"
COMMAND = "ckpt-chaos"
NUM_POINTS = 4  # of theirs; each takes some seconds
DEADLINE_S = 300.0


def measure() -> Iterator[Row]:
    program = shutil.which(COMMAND, path=str(Path(sys.executable).parent)) or shutil.which(COMMAND)
    if program is None:
        print(f"      {COMMAND} is not installed (pip install {COMMAND}): crash points a minute are not compared")
        return
    with tempfile.TemporaryDirectory(prefix="chaos-bench-") as name:
        theirs_per_min, num_theirs = _theirs(program, Path(name))
        ours_per_min, num_ours = _ours(Path(name))
    yield Row(
        what=f"crash points a minute: {COMMAND} / crashstates",
        measured=theirs_per_min / ours_per_min,
        budget=1 / 100,
        detail=f"{theirs_per_min:.1f} ({num_theirs} points) / {ours_per_min:,.0f} ({num_ours} states), start counted",
    )


def _ours(directory: Path) -> tuple[float, int]:
    root = directory / "ours"
    root.mkdir()
    started_s = time.monotonic()
    found = examine(SCRIPT, root)
    num_states = found.verdicts.total()
    if found.problems or not num_states:
        raise RuntimeError(f"{SCRIPT.name} cannot be judged, and so not timed: {found.problems}")
    return num_states * 60 / (time.monotonic() - started_s), num_states


def _theirs(program: str, directory: Path) -> tuple[float, int]:
    """Its control run counts as a point, and only points at which the script did die."""
    work = directory / "theirs"
    started_s = time.monotonic()
    options: list[str | Path] = ["--work", work, "--max-points", str(NUM_POINTS), "--result-file", "{out}/final"]
    subprocess.run(
        [program, "run", *options, "--step-regex", r"resumed from step (\d+)", "--", sys.executable, SCRIPT, "{out}"],
        check=True,
        timeout=DEADLINE_S,
        stdout=subprocess.DEVNULL,
    )
    took_s = time.monotonic() - started_s
    results = [json.loads(path.read_text()) for path in work.glob("pt_*/result.json")]
    num_points = sum(result["crashed"] or "control" in result["label"] for result in results)
    return num_points * 60 / took_s, num_points
