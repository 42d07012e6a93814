"""How long other people's savers take: recorded once, every state that is tried judged by their own load."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from harness._bench.row import Row
from harness.crashstates.examine import examine
from workloads.savers.third_party import load_expected

BUDGET_S = 30.0


def measure() -> Iterator[Row]:
    for expected in load_expected().values():
        if expected.missing:
            print(f"      {expected.name} is not measured: {', '.join(expected.missing)} not installed (extra savers)")
            continue
        with tempfile.TemporaryDirectory(prefix="chaos-bench-", dir=expected.directory) as name:
            started_s = time.monotonic()
            found = examine(expected.path, Path(name), most=expected.most)
            took_s = time.monotonic() - started_s
        if found.problems:
            raise RuntimeError(f"{expected.name} cannot be judged, and so not timed: {found.problems}")
        yield Row(
            what=f"s to record and judge {expected.name}",
            measured=took_s,
            budget=BUDGET_S,
            detail=f"{found.verdicts.total():,} states, {found.reads:,} real loads, start of torch counted",
        )
