"""Judging the record of a large job, which no one has trained: 1,024 ranks with 1,000 events each, and with 2,000."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness._bench.generated import EVENTS_A_STEP, write_run
from harness._bench.row import Row

RANKS, EVENTS = 1024, 1000
JUDGE = """
import json, resource, sys, time
from pathlib import Path
from harness.expect import judge
from harness.history import load_history
from harness.wire import Kind
begun = time.process_time()
history = load_history(Path(sys.argv[1]))
loaded = time.process_time()
judgement = judge(history, None)
unknown = [v.guarantee for v in judgement.verdicts if v.outcome == "unknown"]
assert unknown == ["EndsLikeBaseline"], unknown
peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([loaded - begun, time.process_time() - loaded, peak_kib / 1024, history.count(*Kind)]))
"""


def measure() -> Iterator[Row]:
    load_s, judge_s, peak_mb, num_events = _judged(EVENTS)
    yield Row(
        what=f"judging {RANKS:,} ranks x {EVENTS:,} events: seconds",
        measured=load_s + judge_s,
        budget=10.0,
        detail=f"CPU time, {load_s:.1f} s to load {num_events:,} events, {judge_s:.1f} s for all checks, no baseline",
    )
    longer_mb = _judged(2 * EVENTS)[2]
    yield Row(
        what=f"... memory at its peak, {2 * EVENTS:,} events a rank / {EVENTS:,}",
        measured=longer_mb / peak_mb,
        budget=1.2,
        detail=f"{longer_mb:,.0f} MB / {peak_mb:,.0f} MB: 1 would be flat; of each sample its id is kept, in 4 bytes",
    )


def _judged(events: int) -> tuple[float, float, float, int]:
    """Seconds to load and to judge, peak memory in MB, number of events; in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="chaos-bench-") as name:
        write_run(Path(name), RANKS, events // EVENTS_A_STEP)
        done = subprocess.run([sys.executable, "-c", JUDGE, name], capture_output=True, text=True, check=True)
    load_s, judge_s, peak_mb, num_events = json.loads(done.stdout)
    return load_s, judge_s, peak_mb, num_events
