"""At which step a restarted script is, found from its state: scripts need not say it, and may be wrong about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from harness.wire import Kind, events_path


def step_of_state(run_dir: Path, rank: int, restart: int) -> Callable[[str], int | None]:
    """A function from a digest of the parameters to the step they are the state after.

    It looks at what this rank recorded in the earlier restarts: the newest step with that digest, or None.
    """
    steps: dict[str, int] = {}
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
