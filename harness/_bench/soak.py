"""Many clean warm runs of all workloads, by turns: is there a false alarm, and does anything stay behind?

    python -m harness._bench.soak [RUNS]

Each run is judged on its own (NothingLeft among the guarantees: processes, ports, shared memory). Beside that, this
process's own children and open files are compared before the first run and after the last.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections import Counter
from pathlib import Path

import psutil

from harness.launch.base import is_gone
from harness.plan import make_plan
from harness.run import Session
from harness.scenario import load_scenario

REGRESSION = Path(__file__).parents[2] / "scenarios" / "regression"


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
        files = sorted([*REGRESSION.glob("*_audit.toml"), *REGRESSION.glob("*_gradients.toml")])
        scenarios = [load_scenario(file) for file in files]
        plans = [make_plan(scenario, device="cpu") for scenario in scenarios if scenario.expect.outcome == "clean"]
        before = holdings()
        with Session(store, store / "runs") as session:
            for _, plan in zip(range(num_runs), itertools.cycle(plans), strict=False):
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
    median_s = durations_s[len(durations_s) // 2]
    print(
        f"{num_runs} runs of {len(plans)} scenarios: {dict(outcomes)}, median {median_s:.2f} s; {troubles} left behind"
    )
    return troubles + num_runs - outcomes["passed"]


if __name__ == "__main__":
    sys.exit(min(1, soak(int(sys.argv[1]) if len(sys.argv) > 1 else 200)))
