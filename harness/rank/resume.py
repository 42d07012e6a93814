"""At which step a script that resumes is, found from its state: scripts need not say it, and may be wrong about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.wire import BASELINE_JSON, Kind, events_path


def step_of_state(run_dir: Path, rank: int, restart: int, *, has_start: bool = False) -> Callable[[str], int | None]:
    """A function from a digest of the parameters to the step they are the state after: the newest, or None.

    It looks at what this rank recorded in the earlier restarts.

    Args:
        has_start: the job began with what an earlier one left: then also at the fault-free run in ``run_dir``.
    """
    steps = _of_baseline(run_dir, rank) if has_start else {}
    for earlier in range(restart):
        path = events_path(run_dir, rank, earlier)
        if not path.exists():
            continue
        for line in path.read_bytes().splitlines():
            if f'"kind":"{Kind.UPDATE}"'.encode() in line or f'"kind":"{Kind.STATE}"'.encode() in line:
                try:
                    event = json.loads(line)
                except ValueError:
                    continue  # torn by the end of that process
                steps[event["params"]] = max(event["step"], steps.get(event["params"], 0))
    return steps.get


def _of_baseline(run_dir: Path, rank: int) -> dict[str, int]:
    baseline: dict[str, Any] = json.loads((run_dir / BASELINE_JSON).read_text())
    states = {0: start} if (start := baseline["starts"].get(str(rank))) is not None else {}
    states |= {int(step): state for step, state in baseline["updates"].get(str(rank), {}).items()}
    return {state["params"]: step for step, state in sorted(states.items())}
