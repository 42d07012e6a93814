"""Two real ranks: what the script has waited for is known, what gloo's threads alone have read is not."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.crashstates.examine import examine
from harness.crashstates.ranks.session import Host
from harness.crashstates.record.tracing import why_unavailable

trouble = why_unavailable()
pytestmark = pytest.mark.skipif(trouble is not None, reason=str(trouble))

SAVER = """
import os, threading, time
from pathlib import Path
import torch
import torch.distributed as dist

ranks, steps = 2, (1, 2)

def write(path, text):
    path.write_text(text)
    for place in (path, path.parent):
        fd = os.open(place, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)

def save(directory, step):
    rank = dist.get_rank()
    shard = directory / f"{step}-{rank}"
{sync}
    if rank == 0:
        write(directory / "draft", str(step))
        (directory / "draft").rename(directory / "latest")
        write(directory / "unused", "")
    dist.barrier()

def load(directory):
    if not (directory / "latest").exists():
        return None
    step = (directory / "latest").read_text()
    return step, (directory / f"{step}-{dist.get_rank()}").read_text()
"""
WRITE = 'write(shard, "x")\n'
BARRIER = "work = dist.barrier(async_op=True)\n"
RIGHT = {
    "a barrier": "dist.barrier()",
    "a work that is waited for": BARRIER + "work.wait()",
    "a work that is asked whether it is done": BARRIER + "while not work.is_completed():\n    pass",
    "a future": BARRIER + "work.get_future().wait()",
    "several futures": BARRIER + "torch.futures.wait_all([work.get_future()])",
    "an event that is set when it is done": (
        BARRIER + "done = threading.Event()\nwork.get_future().then(lambda _: done.set())\ndone.wait()"
    ),
    "a monitored barrier": "dist.monitored_barrier()",
    "objects that are gathered": "dist.all_gather_object([None, None], rank)",
    "a thread that has waited": "thread = threading.Thread(target=dist.barrier)\nthread.start()\nthread.join()",
    "a functional collective, imported in the save": (
        "from torch.distributed import _functional_collectives as f\n"
        "int(f.wait_tensor(f.all_reduce(torch.ones(1), 'sum', dist.group.WORLD)))"
    ),
    "a backward pass of DDP": (
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))\nmodel(torch.ones(1, 1)).backward()"
    ),
}
WRONG = {
    "nothing is waited for": BARRIER,
    "time is waited for": BARRIER + "time.sleep(0.2)",
}


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with Host(["torch"]) as host:
        yield host


def outcome(host: Host, place: Path, sync: str) -> str:
    file, root = place / "saver.py", place / "root"
    file.write_text(SAVER.replace("{sync}", textwrap.indent(sync, "    ")))
    root.mkdir()
    found = examine(file, root, models=["kill"], host=host)
    assert found.problems == []
    return found.outcome


@pytest.mark.parametrize("sync", RIGHT.values(), ids=RIGHT)
def test_what_was_waited_for_is_known(host: Host, tmp_path: Path, sync: str) -> None:
    assert outcome(host, tmp_path, WRITE + sync) == "valid"


@pytest.mark.parametrize("sync", WRONG.values(), ids=WRONG)
def test_what_was_only_read_ahead_is_not(host: Host, tmp_path: Path, sync: str) -> None:
    assert outcome(host, tmp_path, WRITE + sync) == "broken"


def test_what_is_done_after_a_collective_was_begun_is_not_told_by_it(host: Host, tmp_path: Path) -> None:
    """gloo holds back what it has to send until the other one asks for it."""
    late = "if rank == 0:\n    time.sleep(0.2)\n    dist.barrier()\nelse:\n"
    late += "".join(f"    {line}\n" for line in (BARRIER.strip(), WRITE.strip(), "work.wait()"))
    assert outcome(host, tmp_path, WRITE.replace("write", "rank or write") + late) == "broken"
