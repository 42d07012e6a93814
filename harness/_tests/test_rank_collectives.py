"""Real ranks on gloo: what the four collectives return, what is recorded of them, and faults in their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness._tests.launched import Run, shown
from harness.checks.diagnosis import diagnose
from harness.faults.base import At, Fault
from harness.faults.extra_collective import ExtraCollective
from harness.faults.kill import Kill
from harness.faults.raise_ import Raise
from harness.faults.skip_collective import SkipCollective
from harness.history import History
from harness.wire import Kind

INIT = 'dist.init_process_group("gloo")\n'
END = "dist.destroy_process_group()\n"


def operations(history: History, rank: int, restart: int = 0) -> list[str]:
    return [e.data["op"] for e in history.of(Kind.COLLECTIVE, rank=rank, restart=restart)]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_four_collectives_give_the_values_of_the_specification(run: Run, tmp_path: Path, ranks: int) -> None:
    history = run(
        INIT
        + """
summed = torch.tensor([float(rank)])
dist.all_reduce(summed)
gathered = [torch.zeros(1) for _ in range(world_size)]
dist.all_gather(gathered, torch.tensor([float(rank)]))
sent = torch.tensor([float(rank)])
dist.broadcast(sent, src=0)
scattered = torch.zeros(2)
dist.reduce_scatter(scattered, list((torch.arange(2.0 * world_size) + 100 * rank).chunk(world_size)))
show(summed=summed.tolist(), gathered=[g.item() for g in gathered], sent=sent.tolist(), scattered=scattered.tolist())
"""
        + END,
        ranks=ranks,
    )
    assert history.outcome.exit_code == 0
    hundreds = 100 * sum(range(ranks))
    for rank in range(ranks):
        assert shown(tmp_path, history, rank) == {
            "summed": [sum(range(ranks))],
            "gathered": list(range(ranks)),
            "sent": [0],
            "scattered": [2 * rank * ranks + hundreds, (2 * rank + 1) * ranks + hundreds],
        }
        assert operations(history, rank) == ["all_reduce", "all_gather", "broadcast", "reduce_scatter"]


def test_what_a_model_sends_by_itself_is_told_from_what_the_script_asks_for(run: Run) -> None:
    history = run(
        INIT
        + """
layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
model = torch.nn.parallel.DistributedDataParallel(layers)
model(torch.ones(2, 4)).sum().backward()
dist.all_reduce(layers[0].weight.grad)
dist.barrier()
"""
        + END
    )
    sent = history.of(Kind.COLLECTIVE, rank=1, restart=0)
    implied = {e.data["op"] for e in sent if e.phase in ("forward", "backward") and e.data.get("implied")}
    asked = [e.data["op"] for e in sent if not e.data.get("implied")]
    assert "all_reduce" in implied
    assert asked[-2:] == ["all_reduce", "barrier"]
    assert all(e.data["site"].startswith(history.plan.script) for e in sent)


def test_each_call_is_recorded_with_what_two_ranks_must_agree_on(run: Run) -> None:
    history = run(INIT + "dist.all_reduce(torch.ones(3, 4, dtype=torch.float64), op=dist.ReduceOp.MAX)\n" + END)
    (event,) = history.of(Kind.COLLECTIVE, rank=1, restart=0)
    site = event.data["site"]
    assert {k: event.data[k] for k in ("call", "op", "reduce_op", "numel", "dtype", "root")} == {
        "call": 1,
        "op": "all_reduce",
        "reduce_op": "MAX",
        "numel": 12,
        "dtype": "float64",
        "root": None,
    }
    assert site.startswith(history.plan.script)
    assert int(site.rpartition(":")[2]) > 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
dist.barrier()
model(torch.ones(1, 4)).sum().backward()
del model
""",
            ["all_reduce"],
            id="DDP's gradient bucket",
        ),
        pytest.param(
            """
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
model = torch.nn.Linear(4, 4)
fully_shard(model, mesh=init_device_mesh("cpu", (world_size,)))
dist.barrier()
model(torch.ones(1, 4)).sum().backward()
""",
            ["all_gather", "reduce_scatter"],
            id="FSDP2's gather of parameters and scatter of gradients",
        ),
        pytest.param(
            """
import torch.distributed._functional_collectives as functional
dist.barrier()
(functional.all_reduce(torch.ones(2), "sum", dist.group.WORLD) + 0).sum().item()
""",
            ["all_reduce"],
            id="functional collectives",
        ),
    ],
)
def test_collectives_that_no_script_wrote_are_seen(run: Run, text: str, expected: list[str]) -> None:
    history = run(INIT + text + END)
    assert history.outcome.exit_code == 0
    after_barrier = operations(history, 0)
    after_barrier = after_barrier[after_barrier.index("barrier") + 1 :]
    assert after_barrier == expected


def test_a_sub_group_has_its_own_count(run: Run) -> None:
    history = run(
        INIT
        + "pair = dist.new_group([1, 2])\nif rank in (1, 2):\n    dist.all_reduce(torch.ones(1), group=pair)\n"
        + "dist.barrier()\n"  # rank 0 keeps the store, by which the others meet
        + END,
        ranks=3,
    )
    assert history.outcome.exit_code == 0
    groups = {tuple(e.data["ranks"]) for e in history.of(Kind.GROUP, rank=1, restart=0)}
    assert groups == {(0, 1, 2), (1, 2)}
    sub = [e for e in history.of(Kind.COLLECTIVE, rank=2, restart=0) if e.data["op"] == "all_reduce"]
    assert [e.data["call"] for e in sub] == [1]
    assert operations(history, 0).count("all_reduce") == 0


@pytest.mark.parametrize("ranks", ["np.arange(2)", "torch.arange(2)"])
def test_the_ranks_of_a_group_are_whole_numbers_however_they_were_given(run: Run, ranks: str) -> None:
    history = run(f"import numpy as np\n{INIT}pair = dist.new_group(list({ranks}))\n{END}")
    assert (history.outcome.exit_code, history.damaged) == (0, ())
    assert [e.data["ranks"] for e in history.of(Kind.GROUP, rank=1, restart=0)] == [[0, 1], [0, 1]]


def test_a_skipped_call_is_not_sent_and_the_others_pair_wrongly_and_silently(run: Run, tmp_path: Path) -> None:
    # With rank 1 skipping its second sum, its third pairs with rank 0's second.
    history = run(
        INIT
        + """
sums = []
for value in (10.0, 20.0, 25.0):
    x = torch.tensor([value + rank])
    dist.all_reduce(x)
    sums.append(x.item())
    show(sums=sums)
"""
        + END,
        SkipCollective(rank=1, at=At(collective=2)),
    )
    assert shown(tmp_path, history, 1)["sums"] == [21, 21, 46]  # right: 21, 41, 51; its second stayed its own value
    assert shown(tmp_path, history, 0)["sums"] == [21, 46]
    faulted = [e.data.get("faulted") for e in history.of(Kind.COLLECTIVE, rank=1, restart=0)]
    assert faulted == [None, "skipped", None]
    assert history.outcome.exit_code != 0


def test_an_extra_call_of_equal_shape_shifts_every_later_one(run: Run, tmp_path: Path) -> None:
    # Rank 0 sends one more; right sums are 21, 41, 61.
    history = run(
        INIT
        + """
sums = []
for value in (10.0, 20.0, 30.0):
    x = torch.tensor([value + rank])
    dist.all_reduce(x)
    sums.append(x.item())
    show(sums=sums)
"""
        + END,
        ExtraCollective(rank=0, at=At(collective=2)),
    )
    assert shown(tmp_path, history, 1)["sums"] == [21, 21, 51]
    assert [e.data.get("faulted") for e in history.of(Kind.COLLECTIVE, rank=0, restart=0)][:3] == [None, "extra", None]


@pytest.mark.parametrize(
    ("call", "sent"),
    [
        (
            "dist.all_gather([torch.zeros(3) for _ in range(2)], torch.zeros(3))",
            ["all_reduce", "SUM", 3, "float32", None],
        ),
        ("dist.all_reduce(torch.zeros(3), op=dist.ReduceOp.MAX)", ["all_reduce", "SUM", 3, "float32", None]),
        ("dist.broadcast(torch.zeros(3), src=1)", ["broadcast", None, 3, "float32", 1]),
    ],
)
def test_an_extra_call_is_recorded_as_what_is_sent(run: Run, call: str, sent: list[Any]) -> None:
    both = tuple(ExtraCollective(rank=rank, at=At(collective=1)) for rank in (0, 1))
    history = run(INIT + call + "\n" + END, *both)
    for rank in (0, 1):
        extra, asked_for = history.of(Kind.COLLECTIVE, rank=rank, restart=0)[:2]
        assert [extra.data[name] for name in ("op", "reduce_op", "numel", "dtype", "root")] == sent
        assert (extra.data["faulted"], "faulted" in asked_for.data) == ("extra", False)


def test_an_extra_call_of_another_shape_ends_a_rank_without_a_word(run: Run) -> None:
    # The rank with the smaller tensor dies by SIGABRT and raises nothing.
    history = run(
        INIT + "dist.all_reduce(torch.ones(100))\n" + END, ExtraCollective(rank=1, numel=8, at=At(collective=1))
    )
    assert history.outcome.exit_code != 0
    assert not history.of(Kind.EXCEPTION, rank=1, restart=0)
    assert "Fatal Python error: Aborted" in history.stacks[1, 0]


def test_a_kill_at_the_third_collective_leaves_two_on_record(run: Run) -> None:
    text = INIT + "for _ in range(5):\n    dist.all_reduce(torch.ones(1))\n" + END
    history = run(text, Kill(rank=1, at=At(collective=3)))
    assert operations(history, 1) == ["all_reduce"] * 2
    assert history.of(rank=1, restart=0)[-1].kind == Kind.FAULT
    assert [e.exit_code for e in history.outcome.agent_exits if e.local_rank == 1] == [-9]


def test_the_script_sees_the_stock_backend(run: Run, tmp_path: Path) -> None:
    history = run(INIT + "show(backend=dist.get_backend(), size=dist.get_world_size())\n" + END)
    assert shown(tmp_path, history, 0) == {"backend": "gloo", "size": 2}


def test_the_plans_bound_replaces_the_scripts_timeout(run: Run) -> None:
    text = """
from datetime import timedelta
dist.init_process_group("gloo", timeout=timedelta(hours=1))
if rank == 0:
    dist.all_reduce(torch.ones(1))
else:
    import signal; signal.pause()
"""
    history = run(text, collective_timeout_s=1.0, deadline_s=20.0)
    (error,) = history.of(Kind.EXCEPTION)
    assert error.rank == 0
    assert error.data["in_collective"]
    assert history.outcome.duration_s < 15


# Only rank 1 ends by itself: had rank 0 ended first, the launcher might end rank 1 before its last words.
RAISES = """
if rank == 1:
    raise ValueError("of the script itself")
import signal; signal.pause()
"""


@pytest.mark.parametrize(
    ("fault", "came_back", "sent"),
    [
        pytest.param(None, 2, 2, id="undisturbed"),
        pytest.param(SkipCollective(rank=1, at=At(collective=2)), 2, 1, id="one is skipped"),
        pytest.param(ExtraCollective(rank=1, at=At(collective=2)), 2, 3, id="one is put in"),
        pytest.param(Raise(rank=1, at=At(collective=2)), 1, 1, id="the second call raises"),
    ],
)
def test_the_last_word_counts_what_the_script_came_back_from(
    run: Run, fault: Fault | None, came_back: int, sent: int
) -> None:
    faults = [fault] if fault is not None else []
    # Rank 0 takes part in as many as rank 1 sends, so that none of them fails.
    text = INIT + f"for _ in range(2 if rank == 1 else {sent}):\n    dist.all_reduce(torch.ones(1))\n" + RAISES
    history = run(text, *faults)
    words = history.of((Kind.EXCEPTION, Kind.EXIT), rank=1, restart=0)
    assert [e.kind for e in words] == [Kind.EXCEPTION, Kind.EXIT]
    for word in words:
        assert word.data["returned"] == {"0": {"calls": came_back, "last": "all_reduce", "raised": 0}}
    calls = history.of(Kind.COLLECTIVE, rank=1, restart=0)
    assert sum(e.data.get("faulted") != "skipped" for e in calls) == sent


def test_a_call_that_fails_counts_as_no_more_than_was_sent(run: Run) -> None:
    history = run(INIT + "if rank == 1:\n    dist.all_reduce(torch.ones(1))\n", ranks=2)
    (word,) = history.of(Kind.EXCEPTION, rank=1, restart=0)
    assert word.data["in_collective"]
    assert word.data["returned"].get("0", {"calls": 0})["calls"] <= len(operations(history, 1))


MESH = """
from torch.distributed.device_mesh import init_device_mesh
init_device_mesh("cpu", (world_size,))
"""


@pytest.mark.parametrize("text", [INIT, MESH], ids=["by init_process_group", "by init_device_mesh"])
def test_the_rendezvous_is_recorded_on_entering_and_on_coming_back(run: Run, text: str) -> None:
    history = run(text + END)
    assert history.outcome.exit_code == 0
    for rank in range(2):
        kinds = [e.kind for e in history.of(rank=rank, restart=0)]
        assert [k for k in kinds if k in (Kind.RENDEZVOUS_START, Kind.RENDEZVOUS_END, Kind.GROUP)][:3] == [
            Kind.RENDEZVOUS_START,
            Kind.GROUP,
            Kind.RENDEZVOUS_END,
        ]


def test_a_rank_that_never_comes_to_the_rendezvous_is_named(run: Run) -> None:
    history = run("import signal\nif rank == 1:\n    signal.pause()\n" + INIT, collective_timeout_s=1.0)
    assert not history.of(Kind.RENDEZVOUS_END)
    (cause,) = diagnose(history)
    assert (cause.how, cause.rank, cause.operation) == ("hang", 1, "init_process_group"), cause


def test_what_a_thread_beside_the_training_sends_is_marked(run: Run) -> None:
    history = run(
        INIT
        + """
import threading
votes = dist.new_group(backend="gloo")
thread = threading.Thread(target=dist.barrier, args=(votes,))
thread.start()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
thread.join()
model(torch.ones(1, 4)).sum().backward()
del model
"""
        + END
    )
    assert history.outcome.exit_code == 0
    (group,) = {e.data["group"] for e in history.of(Kind.GROUP)} - {"0"}
    for event in history.of(Kind.COLLECTIVE):
        is_vote = event.data["op"] == "barrier" and event.data["group"] == group
        assert event.data.get("aside", False) is is_vote, event
    assert sum(bool(e.data.get("aside")) for e in history.of(Kind.COLLECTIVE)) == 2


def test_a_wrong_argument_is_the_ranks_own_error_and_no_failed_communication(run: Run) -> None:
    """torch raises it from within its own files, before anything is sent."""
    history = run(INIT + "dist.all_reduce(torch.ones(1) if rank == 0 else 'no tensor')\n", collective_timeout_s=1.0)
    (error,) = history.of(Kind.EXCEPTION, rank=1, restart=0)
    assert (error.data["type"], error.data["in_collective"]) == ("TypeError", False)
