"""A thousand scenario files, collected by pytest."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from harness._bench.recovery import SCENARIO
from harness._bench.row import Row

NUM_FILES = 1000
COLLECT = """
import sys, pytest
code = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", sys.argv[1]])
assert code == 0, code
assert "torch" not in sys.modules, "collecting must not import torch"
"""


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="chaos-bench-") as folder:
        for number in range(NUM_FILES):
            Path(folder, f"scenario-{number}.toml").write_text(SCENARIO)
        started = time.monotonic()
        collected = subprocess.run(
            [sys.executable, "-c", COLLECT, folder], cwd=folder, capture_output=True, text=True, check=False
        )
        duration_s = time.monotonic() - started
    if collected.returncode != 0 or f"{NUM_FILES} tests collected" not in collected.stdout:
        raise RuntimeError(f"collecting failed:\n{collected.stdout[-1000:]}\n{collected.stderr[-1000:]}")
    yield Row(
        what=f"collecting {NUM_FILES} scenario files, torch not imported: seconds",
        measured=duration_s,
        budget=3.0,
        detail="a fresh interpreter, pytest's own start included",
    )
