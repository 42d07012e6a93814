"""A fault on several ranks: they end together, or not at all."""

from __future__ import annotations

import pytest

from harness._tests.launched import Run
from harness.faults.base import At
from harness.faults.exit import Exit
from harness.faults.kill import Kill
from harness.wire import Kind

# Rank 1 goes on only when rank 0's fault is on record: by then a rank 0 that did not wait would be dead, and all ended.
RANK_1_IS_LATE = """
from pathlib import Path
record = Path(os.environ["CHAOS_RUN_DIR"], "rank-0", "events-0.jsonl")
while rank == 1 and not (record.exists() and '"kind":"fault"' in record.read_text()):
    pass
torch.ones(1, requires_grad=True).sum().backward()
"""


@pytest.mark.parametrize("rank", ["all", [0, 1]])
def test_ranks_that_one_fault_ends_wait_for_each_other(run: Run, rank: object) -> None:
    fault = Kill(rank=rank, at=At(phase="backward"))  # type: ignore[arg-type]
    history = run(RANK_1_IS_LATE, fault, collective_timeout_s=30.0)  # they wait for half of it at most
    assert {event.rank for event in history.of(Kind.FAULT)} == {0, 1}


def test_a_rank_whose_fellow_never_comes_ends_alone_and_in_time(run: Run) -> None:
    text = "while rank == 1: pass\ntorch.ones(1, requires_grad=True).sum().backward()"
    history = run(text, Exit(rank="all", code=3, at=At(phase="backward")), collective_timeout_s=1.0)
    assert {event.rank for event in history.of(Kind.FAULT)} == {0}
    assert (history.outcome.exit_code, history.outcome.timed_out) == (1, False)
