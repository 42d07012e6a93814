"""How fast crash states are judged: of the store on one rank, and all of its save on four."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from harness._bench.row import Row
from harness.crashstates.command import work_directory
from harness.crashstates.examine import Examination, examine

SAVERS = Path(__file__).parents[2] / "workloads" / "savers"


def measure() -> Iterator[Row]:
    found, _ = _examined("store")
    num_states = found.verdicts.total()
    yield Row(
        what="crash states: ms for each, of the store on one rank",
        measured=1e3 * found.seconds["judge"] / num_states,
        budget=1.0,
        detail=f"{num_states:,} states, {found.reads} real loads",
    )
    found, took_s = _examined("store_4_ranks")
    yield Row(
        what="crash states: s for all of the store's save on four ranks",
        measured=took_s,
        budget=5.0,
        detail=f"{found.verdicts.total():,} states, {found.reads} real loads, start of torch counted",
    )


def _examined(name: str) -> tuple[Examination, float]:
    with work_directory() as root:
        started_s = time.monotonic()
        found = examine(SAVERS / f"{name}.py", root)
        took_s = time.monotonic() - started_s
    if found.outcome != "valid":
        raise RuntimeError(f"{name} is {found.outcome}, and so not timed: {found.problems}")
    return found, took_s
