"""The record of a long, healthy run of many ranks, written as ranks would write it; nothing is trained."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.plan import Expect, Plan, write_plan
from harness.wire import GENERATORS, OUTCOME_JSON, Kind, events_path

EVENTS_A_STEP = 7
STEP_NS, RANK_NS = 15_000_000, 40_000  # a step's length, and how far apart the ranks are
EPOCH, BATCH = 100, 8


def write_run(run_dir: Path, ranks: int, steps: int) -> Plan:
    """A run directory with a plan, an outcome and records; returns the plan."""
    plan = Plan(name="generated", script="train.py", ranks=ranks, steps=steps, expect=Expect(outcome="clean"))
    write_plan(plan, run_dir)
    ended_ns = (steps + 20) * STEP_NS
    outcome = {
        "exit_code": 0,
        "timed_out": False,
        "started_ns": 0,
        "ended_ns": ended_ns,
        "leftovers": [],
        "agent_exits": [],
    }
    (run_dir / OUTCOME_JSON).write_text(json.dumps(outcome))
    for rank in range(ranks):
        path = events_path(run_dir, rank, 0)
        path.parent.mkdir()
        with path.open("w") as file:
            for t_ns, kind, step, phase, fields in _events(rank, ranks, steps):
                line = {"t": t_ns + rank * RANK_NS, "kind": kind, "step": step, "phase": phase, **fields}
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
    return plan


def _events(rank: int, ranks: int, steps: int) -> Iterator[tuple[int, Kind, int, str, dict[str, Any]]]:
    place = {"pid": 1000 + rank, "local_rank": rank, "world_size": ranks, "local_world_size": ranks, "host": "one"}
    yield (
        0,
        Kind.START,
        0,
        "init",
        {**place, "master_addr": "localhost", "master_port": 1, "device": "", "script": "t.py"},
    )
    yield 1_000_000, Kind.GROUP, 0, "init", {"group": "0", "ranks": list(range(ranks)), "backend": "gloo"}
    yield 2_000_000, Kind.STATE, 0, "init", {**_digests(0), "matched_step": None, "claimed_step": None}
    for step in range(1, steps + 1):
        at_ns = step * STEP_NS
        epoch, index = divmod(step - 1, EPOCH)
        first = index * ranks * BATCH
        ids = [first + rank + ranks * number for number in range(BATCH)]
        if index == 0:
            loader = {"loader": 0, "epoch": epoch, "length": EPOCH, "distributed": True, "data": 0}
            yield at_ns, Kind.LOADER, step, "load_batch", {**loader, "samples": EPOCH * ranks * BATCH, "padding": 0}
        yield at_ns + 100_000, Kind.PHASE, step, "load_batch", {}
        yield at_ns + 200_000, Kind.BATCH, step, "load_batch", {"loader": 0, "epoch": epoch, "index": index, "ids": ids}
        yield at_ns + 1_000_000, Kind.PHASE, step, "forward", {}
        yield at_ns + 5_000_000, Kind.PHASE, step, "backward", {}
        sent = {"call": step, "group": "0", "op": "all_reduce", "reduce_op": "SUM", "numel": 4482, "dtype": "float32"}
        yield at_ns + 11_000_000, Kind.COLLECTIVE, step, "backward", {**sent, "root": None, "site": "/job/train.py:105"}
        yield at_ns + 12_000_000, Kind.PHASE, step, "optimizer_step", {}
        more = {"scaler": None, **dict.fromkeys(GENERATORS, f"{step:016x}"), "lr": [0.01], "ids": ids, "sharded": False}
        state = {**_digests(step), **more, "epoch": epoch, "batches": 1}
        yield at_ns + 14_000_000, Kind.UPDATE, step, "optimizer_step", state
    end_ns = (steps + 2) * STEP_NS
    yield end_ns, Kind.EXIT, steps, "teardown", {"code": 0, **_digests(steps), "threads": [], "sources": []}


def _digests(step: int) -> dict[str, str]:
    return {name: f"{number:016x}{step:016x}" for number, name in enumerate(("params", "optimizer", "buffers"))}
