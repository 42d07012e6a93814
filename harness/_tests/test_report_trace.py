"""trace.json: what Perfetto needs of it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from harness._tests.histories import run
from harness._tests.stored_runs import killed_and_recovered
from harness.faults import At
from harness.faults.kill import Kill
from harness.report.stored import StoredJudgement
from harness.report.timeline import make_timeline
from harness.report.trace import write_trace

KILL = Kill(kind="kill", rank=1, at=At(step=8, phase="backward"))


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    history = killed_and_recovered(run(faults=[KILL], title="</script>\u2028\ud800")).history()
    timeline = make_timeline(history, StoredJudgement("passed", "", (), (), ()))
    path: Path = write_trace(history, timeline, tmp_path_factory.mktemp("trace"))
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return events


def test_each_rank_is_a_process_with_a_name(trace: list[dict[str, Any]]) -> None:
    names = {e["pid"]: e["args"]["name"] for e in trace if e["name"] == "process_name"}
    assert names == {0: "rank 0", 1: "rank 1"}


def test_steps_phases_and_launches_are_slices_with_a_length(trace: list[dict[str, Any]]) -> None:
    slices = [e for e in trace if e["ph"] == "X" and e["pid"] == 1]
    steps = [e["name"] for e in slices if e["cat"] == "steps"]
    assert steps == [*(f"step {n}" for n in range(1, 8)), "step 6 (again)", "step 7 (again)", "step 8", "step 9"] + [
        f"step {n}" for n in range(10, 13)
    ]
    assert [e["name"] for e in slices if e["cat"] == "launch"] == ["launch 0", "launch 1"]
    assert {"forward", "backward", "optimizer_step"} & {e["name"] for e in slices if e["cat"] == "phases"}
    assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in slices)


def test_slices_of_one_thread_do_not_overlap(trace: list[dict[str, Any]]) -> None:
    threads: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for event in trace:
        if event["ph"] == "X" and event["cat"] in ("steps", "phases", "launch"):
            threads.setdefault((event["pid"], event["tid"]), []).append(event)
    for events in threads.values():
        for before, after in itertools.pairwise(events):
            assert before["ts"] + before["dur"] <= after["ts"] + 1e-3


def test_collectives_are_instants(trace: list[dict[str, Any]]) -> None:
    instants = [e for e in trace if e["ph"] == "i" and e["cat"] == "collectives"]
    assert {e["name"] for e in instants} >= {"all_reduce", "barrier"}
    assert all(e["s"] == "t" for e in instants)


def test_each_flow_begins_and_ends_inside_a_slice(trace: list[dict[str, Any]]) -> None:
    flows = [e for e in trace if e["ph"] in ("s", "f")]
    assert {e["name"] for e in flows} == {"resumed from", "seen as"}
    slices = [e for e in trace if e["ph"] in ("X", "i")]
    for flow in flows:
        assert any(
            (e["pid"], e["tid"]) == (flow["pid"], flow["tid"])
            and e["ts"] - 1 <= flow["ts"] <= e["ts"] + e.get("dur", 0) + 1
            for e in slices
        ), flow
    by_id = {e["id"]: [f["ph"] for f in flows if f["id"] == e["id"]] for e in flows}
    assert set(map(tuple, by_id.values())) == {("s", "f")}
