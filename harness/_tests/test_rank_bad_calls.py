"""Faults that act on one collective call, with real ranks: what is sent, what comes back, and what is on record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness._tests.launched import Run, shown
from harness.faults.base import At, CollectiveFault
from harness.faults.change_reduction import ChangeReduction
from harness.faults.corrupt_collective import CorruptCollective
from harness.faults.double_collective import DoubleCollective
from harness.faults.retype_collective import RetypeCollective
from harness.faults.swap_collective import SwapCollective
from harness.wire import Kind

INIT = 'dist.init_process_group("gloo")\n'
END = "\ndist.destroy_process_group()\n"
FIRST = At(collective=1)


def test_a_call_that_is_sent_twice_meets_the_next_one_of_its_peer(run: Run, tmp_path: Path) -> None:
    # Rank 0: 1 + 2 = 3, then 10 + 3 = 13. Rank 1: 3, its second try 3 + 10 = 13, and nobody for the last.
    text = """
sums = []
for value in (1.0, 10.0):
    x = torch.tensor([value * (rank + 1)])
    dist.all_reduce(x)
    sums.append(x.item())
    show(sums=sums)
"""
    history = run(INIT + text + END, DoubleCollective(rank=1, at=FIRST), collective_timeout_s=1.0)
    assert shown(tmp_path, history, 0)["sums"] == [3, 13]
    assert shown(tmp_path, history, 1)["sums"] == [13]
    assert [e.data.get("faulted") for e in history.of(Kind.COLLECTIVE, rank=1, restart=0)] == [None, "extra", None]


def test_two_calls_swap_their_places(run: Run, tmp_path: Path) -> None:
    text = """
one, two = torch.tensor([1.0 + rank]), torch.tensor([10.0 + rank])
dist.all_reduce(one)
before = one.item()
dist.all_reduce(two)
show(before=before, one=one.item(), two=two.item())
"""
    history = run(INIT + text + END, SwapCollective(rank=1, at=FIRST))
    assert shown(tmp_path, history, 0) == {"before": 12, "one": 12, "two": 12}  # 1 + 11, 10 + 2
    assert shown(tmp_path, history, 1) == {"before": 2, "one": 12, "two": 12}
    sites = [e.data["site"].rpartition(":")[2] for e in history.of(Kind.COLLECTIVE, rank=1, restart=0)[:2]]
    assert sites[0] > sites[1]
    assert history.outcome.exit_code == 0


FLIPPED: dict[str, tuple[CollectiveFault, str, list[Any], list[Any]]] = {
    "the sign of what is summed": (
        CorruptCollective(rank=1, at=FIRST, side="sent", index=2, bit=31),
        "x = torch.ones(4)\ndist.all_reduce(x)", [2, 2, 0, 2], [2, 2, 0, 2]),
    "the sign of what one rank gets": (
        CorruptCollective(rank=1, at=FIRST, index=2, bit=31),
        "x = torch.ones(4)\ndist.all_reduce(x)", [2, 2, 2, 2], [2, 2, -2, 2]),
    "the sign of what is gathered": (
        CorruptCollective(rank=1, at=FIRST, side="sent", index=1, bit=31),
        "x = torch.zeros(4)\ndist.all_gather(list(x.view(2, 2)), torch.ones(2))", [1, 1, 1, -1], [1, 1, 1, -1]),
    "the sign of what one rank gathers, in its second tensor": (
        CorruptCollective(rank=1, at=FIRST, index=2, bit=31),
        "x = torch.zeros(4)\ndist.all_gather(list(x.view(2, 2)), torch.ones(2))", [1, 1, 1, 1], [1, 1, -1, 1]),
    "another reduction": (
        ChangeReduction(rank="all", at=FIRST, reduce_op="MAX"),
        "x = torch.arange(4.0) * (1 + rank)\ndist.all_reduce(x)", [0, 2, 4, 6], [0, 2, 4, 6]),
    "another dtype on both ranks": (
        RetypeCollective(rank="all", at=FIRST, dtype="int32"),
        "x = torch.tensor([0.5, 1.5])\ndist.all_reduce(x)", [0, 2], [0, 2]),
    "another dtype of what is gathered": (
        RetypeCollective(rank="all", at=FIRST, dtype="int32"),
        "x = torch.zeros(2)\ndist.all_gather(list(x.view(2, 1)), torch.tensor([1.5]))", [1, 1], [1, 1]),
}  # fmt: skip


@pytest.mark.parametrize(("fault", "call", "first", "second"), FLIPPED.values(), ids=FLIPPED)
def test_what_the_ranks_get(
    run: Run, tmp_path: Path, fault: CollectiveFault, call: str, first: list[Any], second: list[Any]
) -> None:
    history = run(INIT + call + "\nshow(x=x.tolist())" + END, fault)
    assert [shown(tmp_path, history, rank)["x"] for rank in (0, 1)] == [first, second]
    (fired, *_) = history.of(Kind.FAULT)
    assert fault.missing_effect(fired, [e for e in history.of(rank=fired.rank, restart=0) if e.seq > fired.seq]) is None


NOTHING: dict[str, tuple[CollectiveFault, str, str]] = {
    "an element beyond the last": (CorruptCollective(rank=1, at=FIRST, index=4), "all_reduce", "it has 4"),
    "a bit beyond the last": (CorruptCollective(rank=1, at=FIRST, bit=32), "all_reduce", "4 elements of 32 bits"),
    "a reduction of a broadcast": (ChangeReduction(rank=1, at=FIRST), "broadcast", "has no reduce operation"),
}


@pytest.mark.parametrize(("fault", "operation", "said"), NOTHING.values(), ids=NOTHING)
def test_what_does_not_apply_changes_nothing_and_says_so(
    run: Run, tmp_path: Path, fault: CollectiveFault, operation: str, said: str
) -> None:
    call = f"x = torch.ones(4)\ndist.{operation}(x{', src=0' * (operation == 'broadcast')})\nshow(x=x.tolist())"
    history = run(INIT + call + END, fault)
    (fired,) = history.of(Kind.FAULT)
    after = [e for e in history.of(rank=1, restart=0) if e.seq > fired.seq]
    assert said in (fault.missing_effect(fired, after) or "")
    assert shown(tmp_path, history, 0)["x"] == shown(tmp_path, history, 1)["x"]
