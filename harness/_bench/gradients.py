"""What comparing gradients costs a run: that of lm_tokens with the first two updates looked at, and without."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from harness._bench.row import Row
from harness.plan import Plan, make_plan
from harness.run import Session
from harness.scenario import Expect, Gradient, Scenario

ROUNDS = 9
LOSSES = Path(__file__).parents[2] / "workloads" / "losses" / "lm_tokens.py"


def measure() -> Iterator[Row]:
    scenario = Scenario(workload="lm_tokens", expect=Expect(outcome="clean"))
    bare = make_plan(scenario, device="cpu")
    looked_at = replace(bare, gradient=Gradient(losses=str(LOSSES)))
    with tempfile.TemporaryDirectory(prefix="chaos-bench-") as store, Session(Path(store), Path(store)) as session:
        pairs = [(_duration_s(session, bare), _duration_s(session, looked_at)) for _ in range(ROUNDS + 1)][1:]
    yield Row(
        what="comparing gradients: the run with it / without",
        measured=statistics.median(after / before for before, after in pairs),
        budget=1.1,
        detail=f"{pairs[0][0]:.2f} s / {pairs[0][1]:.2f} s at first, {ROUNDS} pairs of 20 updates of lm_tokens",
    )


def _duration_s(session: Session, plan: Plan) -> float:
    result = session.run(plan)
    if result.judgement.outcome != "passed":
        raise RuntimeError(f"the run to be measured failed: {result.judgement.headline}")
    return result.duration_s
