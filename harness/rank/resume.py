"""What a script that resumes need not say, and may be wrong about: found in the records of its earlier launches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.wire import BASELINE_JSON, Kind, events_path


class EarlierLaunches:
    """What this rank recorded in the launches before this one.

    Args:
        has_start: the job began with what an earlier one left: then its state is also looked for in the fault-free run
            in ``run_dir``.
    """

    def __init__(self, run_dir: Path, rank: int, restart: int, *, has_start: bool = False) -> None:
        self._run_dir, self._rank, self._restart = run_dir, rank, restart
        self._steps: dict[tuple[str, str | None], int] = self._of_baseline() if has_start else {}
        for event in self._events(Kind.UPDATE, Kind.STATE):
            for state in ((event["params"], None), (event["params"], event["optimizer"])):
                self._steps[state] = max(event["step"], self._steps.get(state, 0))

    def step_of_state(self, parameters: str, optimizer: str | None = None) -> int | None:
        """The newest step that parameters of this digest are the state after, or None.

        Args:
            optimizer: the digest of its state, if that is known: parameters may stay the same in an update, at a
                learning rate of 0, say, and then it tells. An optimizer that was not restored tells nothing.
        """
        return self._steps.get((parameters, optimizer), self._steps.get((parameters, None)))

    def pending_ids(self, path: str) -> list[int]:
        """The samples that had been used for an unfinished update when the checkpoint at ``path`` was saved last."""
        saves = [event for event in self._events(Kind.SAVE_START) if event["path"] == path]
        return saves[-1].get("pending", []) if saves else []

    def _events(self, *kinds: Kind) -> Iterator[dict[str, Any]]:
        marks = [f'"kind":"{kind}"'.encode() for kind in kinds]
        for earlier in range(self._restart):
            path = events_path(self._run_dir, self._rank, earlier)
            for line in path.read_bytes().splitlines() if path.exists() else ():
                if any(mark in line for mark in marks):
                    try:
                        yield json.loads(line)
                    except ValueError:
                        continue  # torn by the end of that process

    def _of_baseline(self) -> dict[tuple[str, str | None], int]:
        baseline: dict[str, Any] = json.loads((self._run_dir / BASELINE_JSON).read_text())
        states = {0: start} if (start := baseline["starts"].get(str(self._rank))) is not None else {}
        states |= {int(step): state for step, state in baseline["updates"].get(str(self._rank), {}).items()}
        return {(state["params"], None): step for step, state in sorted(states.items())}
