"""What a script that resumes need not say, and may be wrong about: found in the records of its earlier launches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.wire import BASELINE_JSON, Kind, events_path

Steps = dict[tuple[str, str | None], int]  # digests of parameters and of the optimizer's state (None: any) -> step


class EarlierLaunches:
    """What was recorded in the launches before this one: by this rank; of states, where it had none like it, by others.

    One rank's checkpoint is often loaded by all, also where their states had come to differ.

    Args:
        has_start: the job began with what an earlier one left: then its state is also looked for in the fault-free run
            in ``run_dir``.
    """

    def __init__(self, run_dir: Path, rank: int, restart: int, *, has_start: bool = False) -> None:
        self._run_dir, self._rank, self._restart = run_dir, rank, restart
        self._own = _newest(self._of_baseline() if has_start else {}, self._of_rank(rank))

    def step_of_state(self, parameters: str, optimizer: str | None = None) -> int | None:
        """The newest step that parameters of this digest are the state after, or None.

        Args:
            optimizer: the digest of its state, if that is known: parameters may stay the same in an update, at a
                learning rate of 0, say, and then it tells. An optimizer that was not restored tells nothing.
        """
        states = ((parameters, optimizer), (parameters, None))
        found = (steps.get(state) for steps in (self._own, self._of_others) for state in states)
        return next((step for step in found if step is not None), None)

    def pending_ids(self, path: str) -> list[int]:
        """The samples that had been used for an unfinished update when the checkpoint at ``path`` was saved last."""
        saves = [event for event in self._events(self._rank, Kind.SAVE_START) if event["path"] == path]
        return saves[-1].get("pending", []) if saves else []

    @cached_property
    def _of_others(self) -> Steps:
        names = [path.name.removeprefix("rank-") for path in self._run_dir.glob("rank-*")]
        return _newest(*(self._of_rank(int(name)) for name in names if name.isdecimal() and int(name) != self._rank))

    def _of_rank(self, rank: int) -> Steps:
        events = self._events(rank, Kind.UPDATE, Kind.STATE)
        return _newest(*({(e["params"], None): e["step"], (e["params"], e["optimizer"]): e["step"]} for e in events))

    def _events(self, rank: int, *kinds: Kind) -> Iterator[dict[str, Any]]:
        marks = [f'"kind":"{kind}"'.encode() for kind in kinds]
        for earlier in range(self._restart):
            path = events_path(self._run_dir, rank, earlier)
            for line in path.read_bytes().splitlines() if path.exists() else ():
                if any(mark in line for mark in marks):
                    try:
                        yield json.loads(line)
                    except ValueError:
                        continue  # torn by the end of that process

    def _of_baseline(self) -> Steps:
        baseline: dict[str, Any] = json.loads((self._run_dir / BASELINE_JSON).read_text())
        states = {0: start} if (start := baseline["starts"].get(str(self._rank))) is not None else {}
        states |= {int(step): state for step, state in baseline["updates"].get(str(self._rank), {}).items()}
        return {(state["params"], None): step for step, state in sorted(states.items())}


def _newest(*found: Steps) -> Steps:
    """Of each state the newest step that one of these gives it."""
    newest: Steps = {}
    for steps in found:
        for state, step in steps.items():
            newest[state] = max(step, newest.get(state, 0))
    return newest
