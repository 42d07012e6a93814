"""A real SIGKILL at every failpoint of a save and a load: what was acknowledged is there, and the next job goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.checkpoint.format import FAILPOINTS, inspect
from harness.checkpoint.store import CheckpointStore

SAVE_ORDER = [f"{n}:{moment}" for n, f in FAILPOINTS.items() if f.during == "save" for moment in ("before", "after")]
DATA_FILES = 3  # of one rank in checkpoint_crashes.py


def kills() -> Iterator[dict[str, Any]]:
    for name, failpoint in FAILPOINTS.items():
        for moment in ("before", "after"):
            for hit in range(1, DATA_FILES + 1) if name.startswith("ckpt.shard.") else [1]:
                yield {"failpoint": f"{name}:{moment}", "hit": hit}
            if failpoint.during == "save":
                yield {"failpoint": f"{name}:{moment}", "hit": 1, "beside": True}
        if failpoint.torn:
            for part in (0, 0.3, 0.99):
                yield {"failpoint": f"{name}:torn", "part": part}


def is_at_or_after(failpoint: str, other: str) -> bool:
    return failpoint in SAVE_ORDER and SAVE_ORDER.index(failpoint) >= SAVE_ORDER.index(other)


def words(case: dict[str, Any]) -> str:
    part = f" after {case['part']:.0%} of the bytes" if "part" in case else f" at hit {case['hit']}"
    return f"{case['failpoint']}{part}{' beside the training' if case.get('beside') else ''}"


@pytest.fixture(scope="module")
def crasher() -> Iterator[subprocess.Popen[str]]:
    script = Path(__file__).with_name("checkpoint_crashes.py")
    with subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0


def crash(crasher: subprocess.Popen[str], case: dict[str, Any], root: Path) -> int:
    """The exit code of a job that crashes as the case says."""
    stdin, stdout = crasher.stdin, crasher.stdout
    assert stdin is not None
    assert stdout is not None
    stdin.write(json.dumps({**case, "root": str(root)}) + "\n")
    stdin.flush()
    return int(stdout.readline())


@pytest.mark.parametrize("case", list(kills()), ids=words)
def test_a_job_killed_at(case: dict[str, Any], crasher: subprocess.Popen[str], tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    assert crash(crasher, case, root) == -signal.SIGKILL, "the failpoint was not reached"

    failpoint = case["failpoint"].replace(":torn", ":before")
    is_published = is_at_or_after(failpoint, "ckpt.publish.rename:after")
    is_acknowledged = (tmp_path / "acknowledged").exists()
    assert is_acknowledged == is_at_or_after(failpoint, "ckpt.latest.write:before")

    verdicts = {entry.name: entry.verdict for entry in inspect(root)}
    complete = [name for name, verdict in verdicts.items() if verdict == "complete"]
    assert complete[0] == ("step-15" if is_published else "step-10")
    assert len(complete) >= 2, "at every instant two checkpoints can be loaded"
    assert set(verdicts.values()) <= {"complete", "temporary", "trash"}

    store = CheckpointStore(root, keep_last=2)
    loaded = store.load()
    assert loaded is not None
    assert loaded.step == (15 if is_published else 10)
    assert loaded.shared["model"]["weight"].tolist() == [float(loaded.step)] * 100
    for step in (20, 25):
        store.save(step, loaded.shared, loaded.own)
    assert {entry.name: entry.verdict for entry in inspect(root)} == {"step-25": "complete", "step-20": "complete"}, (
        "what the crash left behind is cleared, the last two stay"
    )


def test_the_job_ends_well_if_nothing_kills_it(crasher: subprocess.Popen[str], tmp_path: Path) -> None:
    assert crash(crasher, {"failpoint": "no.such:point"}, tmp_path / "checkpoints") == 0
    assert [entry.name for entry in inspect(tmp_path / "checkpoints")] == ["step-15", "step-10"]
