"""Votes: every rank hears the same and does the same, also on real gloo ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.checkpoint.exchange import Alone, agree, control_device
from harness.errors import SaveFailed


class Table:
    """An exchange on which the other ranks' messages are given."""

    rank = 0

    def __init__(self, *others: bytes) -> None:
        self._others = others
        self.world_size = 1 + len(others)

    def gather(self, message: bytes) -> list[bytes]:
        return [message, *self._others]

    def apart(self, user: object) -> Table:
        return self


def vote(label: str, value: Any = None, error: str | None = None) -> bytes:
    return json.dumps([label, value, error]).encode()


def fail() -> None:
    raise OSError("disk full")


def test_a_vote_gives_what_every_rank_returned() -> None:
    assert agree(Table(vote("save", 2), vote("save", [3])), "save", lambda: {"x": 1}, SaveFailed) == [{"x": 1}, 2, [3]]
    assert agree(Alone(), "save", lambda: 1, SaveFailed) == [1]


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ([vote("save", error="OSError: disk full")], "save: rank 1: OSError: disk full"),
        ([vote("save"), vote("load: begin")], "rank 1 at 'save', rank 2 at 'load: begin'"),
        ([b""], "a rank's vote is unreadable"),
        ([b"\xff\x00\x01"], "a rank's vote is unreadable"),
        ([b"[1]"], "a rank's vote is unreadable"),
        ([b"{}"], "a rank's vote is unreadable"),
    ],
    ids=["another rank failed", "out of step", "nothing", "not text", "too short", "an object"],
)
def test_all_fail_if(others: list[bytes], words: str) -> None:
    with pytest.raises(SaveFailed) as caught:
        agree(Table(*others), "save", lambda: None, SaveFailed)
    assert words in str(caught.value)


def test_a_rank_that_fails_votes_before_it_raises_and_keeps_the_cause() -> None:
    with pytest.raises(SaveFailed, match="rank 0: OSError: disk full; rank 1: ValueError: x") as caught:
        agree(Table(vote("save", error="ValueError: x")), "save", fail, SaveFailed)
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("backends", ["cpu:gloo,cuda:gloo", "cpu:gloo,cuda:nccl", "cuda:nccl,cpu:gloo", "cpu:wrapped"])
def test_votes_stay_on_the_cpu_where_they_can(backends: str) -> None:
    assert control_device(backends) == torch.device("cpu")


@pytest.mark.gpu
def test_votes_go_to_the_current_device_where_there_is_no_other() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs 1 GPU, this machine has 0")
    assert control_device("cuda:nccl") == torch.device("cuda", torch.cuda.current_device())


JOB = """
import sys
import torch
import torch.distributed as dist
import torch.distributed.nn  # imported late it would pin the process group, and destroying it would not end its threads
from harness.checkpoint.exchange import Exchange, ProcessGroupExchange
from harness.checkpoint.rng import rng_state, set_rng_state
from harness.checkpoint.store import CheckpointStore
from harness.errors import SaveFailed

place, rank, meeting = sys.argv[1], int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
exchange = ProcessGroupExchange()
for size in (0, 1, 4087, 4088, 4089, 10_000):  # around what one collective holds; ranks differ in length
    assert exchange.gather(b"x" * (size * rank)) == [b"", b"x" * size], size
apart = [exchange.apart(user) for user in (exchange, Exchange, exchange)]
assert apart[0]._alive() is apart[2]._alive() and apart[0]._alive() is not apart[1]._alive()
assert apart[1].gather(b"%d" % rank) == [b"0", b"1"]
store = CheckpointStore(place)
loaded = store.load()
torch.manual_seed(rank)
if loaded is None:
    store.save(5, {"model": {"w": torch.full((3,), 5.0)}}, {"rng": rng_state()})
    try:
        store.save(10, {}, {"bad": print if rank == 1 else None})
    except SaveFailed as error:
        assert "rank 1: TypeError: rank-1['bad'] is builtins.builtin_function_or_method" in str(error), error
    else:
        raise AssertionError("rank 1 could not save, and this rank did not hear of it")
else:
    set_rng_state(loaded.own["rng"])
    assert loaded.step == 5 and loaded.shared["model"]["w"].tolist() == [5.0] * 3
print(torch.rand(1).item())
dist.destroy_process_group()
"""


def test_real_gloo_ranks_save_fail_and_load_together(tmp_path: Path) -> None:
    printed = []
    for start in ("first", "second"):
        command = [sys.executable, "-c", JOB, str(tmp_path / "checkpoints")]
        ranks = [
            subprocess.Popen(
                [*command, str(rank), str(tmp_path / start)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            for rank in (0, 1)
        ]
        try:
            outputs = [process.communicate(timeout=60) for process in ranks]
        finally:
            for process in ranks:
                process.kill()
        assert [process.returncode for process in ranks] == [0, 0], outputs
        printed.append([stdout for stdout, _ in outputs])
    assert printed[0] == printed[1], "each rank draws on where it was saved"
    assert printed[0][0] != printed[0][1]
