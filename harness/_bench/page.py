"""The page of a large run: how large it is, how long a browser takes to open it, and what pages cost a session."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from harness._bench.generated import write_run
from harness._bench.row import Row
from harness.report.page import write_run_report

RANKS, STEPS = 64, 2000
ROUNDS = 5
DRAWN = "document.documentElement.dataset.drawn"


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="chaos-bench-") as name:
        small, large = Path(name, "small"), Path(name, "large")
        for run_dir, ranks, steps in ((small, 2, 40), (large, RANKS, STEPS)):
            run_dir.mkdir()
            write_run(run_dir, ranks, steps)
        write_run_report(small)
        yield Row(
            what="the page and the trace of a run of 2 ranks x 40 steps: ms",
            measured=1e3 * statistics.median(_timed_s(small) for _ in range(ROUNDS)),
            budget=100.0,
            detail="CPU time",
        )
        written_s = _timed_s(large)
        page = large / "report.html"
        yield Row(
            what=f"the page of {RANKS} ranks x {STEPS:,} steps: MB",
            measured=page.stat().st_size / 1e6,
            budget=5.0,
            detail=f"written in {written_s:.0f} s of CPU time, the trace included",
        )
        yield from _opened(page)


def _timed_s(run_dir: Path) -> float:
    begun_s = time.process_time()
    write_run_report(run_dir)
    return time.process_time() - begun_s


def _opened(page: Path) -> Iterator[Row]:
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        print("      chromium or playwright is not installed: how long a page takes to open is not measured")
        return
    with sync_playwright() as started:
        flags = ["--no-sandbox"] if os.getuid() == 0 else []
        browser = started.chromium.launch(executable_path=chromium, args=flags)
        times_s = []
        for _ in range(ROUNDS):
            tab = browser.new_page(viewport={"width": 1400, "height": 900})
            begun_s = time.monotonic()
            tab.goto(page.as_uri())
            tab.wait_for_function(f"{DRAWN} >= 1")
            times_s.append(time.monotonic() - begun_s)
            tab.close()
        browser.close()
    yield Row(
        what=f"opening the page of {RANKS} ranks x {STEPS:,} steps: seconds",
        measured=statistics.median(times_s),
        budget=2.0,
        detail=f"from the request until it is drawn, median of {ROUNDS}, {min(times_s):.2f} to {max(times_s):.2f}",
    )
