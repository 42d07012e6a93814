"""Many clean warm runs, one after another: is there a false alarm, and does anything stay behind?

    python -m harness._bench.soak [RUNS]

Each run is judged on its own (NothingLeft among the guarantees: processes, ports, shared memory). Beside that, this
process's own children and open files are compared before the first run and after the last.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

import psutil

from harness.launch.base import is_gone
from harness.plan import make_plan
from harness.run import Session
from harness.scenario import load_scenario

SCENARIO = """
title = "nothing is injected: whatever is found broken is a false alarm"
workload = "ddp_mlp"
[expect]
outcome = "clean"
"""


def holdings() -> dict[str, set[str]]:
    """What this process holds."""
    mine = psutil.Process()
    return {
        "processes": {f"{p.pid} {' '.join(p.cmdline())[:80]}" for p in mine.children(recursive=True)},
        "open files": {link for fd in Path("/proc/self/fd").iterdir() if (link := _target(fd)) is not None},
    }


def _target(fd: Path) -> str | None:
    try:
        return str(fd.readlink())
    except OSError:  # the descriptor of this very listing
        return None


def soak(num_runs: int) -> int:
    """Run them and print what was seen; returns the number of troubles."""
    troubles = 0
    outcomes: Counter[str] = Counter()
    durations_s = []
    with tempfile.TemporaryDirectory(prefix="chaos-soak-") as name:
        store = Path(name)
        scenario = store / "clean.toml"
        scenario.write_text(SCENARIO)
        plan = make_plan(load_scenario(scenario), device="cpu")
        before = holdings()
        with Session(store, store / "runs") as session:
            for _ in range(num_runs):
                result = session.run(plan)
                outcomes[result.judgement.outcome] += 1
                durations_s.append(result.duration_s)
                if result.judgement.outcome != "passed":
                    print(f"{result.run_dir.name}: {result.judgement.headline}", flush=True)
                if not is_gone(result.run_dir):
                    troubles += 1
                    print(f"{result.run_dir.name}: the run's lock is still held", flush=True)
        after = holdings()
    for what, names in after.items():
        if left := names - before[what]:
            troubles += len(left)
            print(f"left behind, {what}: {sorted(left)}")
    durations_s.sort()
    print(
        f"{num_runs} runs: {dict(outcomes)}, median {durations_s[len(durations_s) // 2]:.2f} s; {troubles} left behind"
    )
    return troubles + num_runs - outcomes["passed"]


if __name__ == "__main__":
    sys.exit(min(1, soak(int(sys.argv[1]) if len(sys.argv) > 1 else 200)))
