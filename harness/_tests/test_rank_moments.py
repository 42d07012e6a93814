"""What optimizers keep beside tensors, and in nested containers: digests read it, and checks see where it differs."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from harness._tests.launched import RESUME, SAVE, Run
from harness._tests.test_rank_state import Script, known, weight_of
from harness.baseline import make_baseline
from harness.checks import GUARANTEES
from harness.faults.base import At
from harness.faults.kill import Kill
from harness.rank.state import TrainingState

NESTED: dict[str, Callable[[Any, dict[Any, Any]], Any]] = {
    "a tensor in a list, in place": lambda _, kept: kept["history"][0].add_(1),
    "a tensor in a list, replaced": lambda _, kept: kept["history"].__setitem__(0, torch.ones(3)),
    "the order of a list": lambda _, kept: kept["history"].reverse(),
    "a list that was empty": lambda _, kept: kept["seen"].append(torch.ones(1)),
    "one more in a deque": lambda _, kept: kept["recent"].append(torch.ones(1)),
    "a tensor in a dict in a tuple": lambda _, kept: kept["blocks"][1]["rows"].add_(1),
    "a number in a dict in a tuple": lambda _, kept: kept["blocks"][1].update(rank=3),
    "a key in a dict in a tuple": lambda _, kept: kept["blocks"][1].update(other=kept["blocks"][1].pop("rank")),
    "a tensor under the key of another parameter": lambda _, kept: next(iter(kept["others"].values())).add_(1),
    "a count": lambda _, kept: kept.update(step=1002),
    "a count that becomes a float": lambda _, kept: kept.update(step=1001.0),
    "a float": lambda _, kept: kept.update(scale=0.25),
    "a flag": lambda _, kept: kept.update(is_warm=True),
    "a word": lambda _, kept: kept.update(rule="other"),
    "a number of the whole optimizer": lambda optimizer, _: optimizer.state.update(steps=8),
    "a tensor of the whole optimizer": lambda optimizer, _: optimizer.state["all"]["norm"].add_(1),
    "all of a parameter": lambda optimizer, _: optimizer.state.popitem(),
}


def keep(script: Script) -> dict[Any, Any]:
    """Gives the optimizer more to keep than tensors, as other people's do; returns what it keeps of a parameter."""
    other = torch.zeros(1)
    optimizer: Any = script.optimizer
    optimizer.state.update(steps=7, all={"norm": torch.ones(1)})
    kept: dict[Any, Any] = optimizer.state[weight_of(script)]
    kept |= {"history": [torch.zeros(3), torch.ones(2)], "seen": [], "recent": deque([torch.zeros(1)], maxlen=1)}
    kept |= {"blocks": (None, {"rows": torch.zeros(2), "rank": 2}), "others": {other: torch.zeros(1)}}
    kept |= {"step": 1001, "scale": 0.5, "is_warm": False, "rule": "one"}
    return kept


@pytest.mark.parametrize("what", NESTED)
def test_whatever_an_optimizer_keeps_is_read(what: str) -> None:
    script = Script()
    kept = keep(script)
    before = script.state.digests()
    assert script.state.digests() == before
    NESTED[what](script.optimizer, kept)
    after = script.state.digests()
    assert {part for part in after if after[part] != before[part]} == {"optimizer"}
    assert after == known(script).digests()


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param([(0, 1), (1, 0)], id="tuples"),
        pytest.param([torch.float64, torch.float32], id="types of numbers"),
        pytest.param([torch.device("meta"), torch.device("cpu")], id="devices"),
    ],
)
def test_in_which_order_a_table_was_filled_does_not_matter(keys: list[Any]) -> None:
    """After a resume it may be another one, and the same is in it."""
    seen = set()
    for order in (keys, keys[::-1]):
        script = Script()
        keep(script)["blocks"] = {key: torch.full((2,), keys.index(key)) for key in order}
        seen.add(script.state.digests()["optimizer"])
    assert len(seen) == 1


def test_what_is_nested_without_end_does_not_end_the_training() -> None:
    script = Script()
    kept = keep(script)
    for _ in range(2 * sys.getrecursionlimit()):
        kept["history"] = [kept["history"], torch.ones(1)]
    before = script.state.digests()
    kept["history"][1].add_(1)
    assert script.state.digests()["optimizer"] != before["optimizer"]


@pytest.mark.parametrize("num_parameters", [1, 6])
def test_counts_of_steps_are_read_as_by_one_who_looks_for_the_first_time(num_parameters: int) -> None:
    """They are other objects after each update, and all else is the same: that has a way of its own."""
    script = Script()
    seen = set()
    for step in range(1000, 1003):
        for kept in [*script.optimizer.state.values()][:num_parameters]:
            kept["count"], kept["step"] = step, float(step)
        seen.add(script.state.digests()["optimizer"])
        assert script.state.digests() == known(script).digests()
    script.optimizer.state[weight_of(script)] = {**script.optimizer.state[weight_of(script)], "count": 1003}
    seen.add(script.state.digests()["optimizer"])
    script.optimizer.state[weight_of(script)]["count"] = 1004
    seen.add(script.state.digests()["optimizer"])
    script.optimizer.state[weight_of(script)]["count"] = torch.tensor(1004)
    assert script.state.digests() == known(script).digests()
    assert len(seen) == 5


def test_states_that_were_restored_in_another_order_or_as_other_lists_are_the_same() -> None:
    one, other = Script(), Script()
    keep(one)
    kept = keep(other)
    again = {key: tuple(value) if isinstance(value, list) else value for key, value in reversed(kept.items())}
    other.optimizer.state[weight_of(other)] = again
    assert other.state.digests() == one.state.digests()


def test_what_holds_itself_and_what_is_of_no_known_kind_stop_nobody() -> None:
    script = Script()
    before = script.state.digests()
    kept = script.optimizer.state[weight_of(script)]
    kept["itself"] = [kept, script.model, object()]
    kept[object()] = {1: 2, "1": object(), None: object}
    assert script.state.digests() != before
    assert script.state.digests() == script.state.digests()


def test_of_floats_that_may_be_losses_of_this_rank_nothing_is_read_but_of_all_else() -> None:
    """LBFGS keeps the loss of the closure that it is given, and its histories of directions in lists."""
    digests: list[str] = []
    for loss_of_this_rank in (1.0, 2.0, 2.0):
        torch.manual_seed(0)
        weight = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.LBFGS([weight], lr=0.1, max_iter=2)
        state = TrainingState()
        state.add_optimizer(optimizer, has_closure=True)

        def closure() -> torch.Tensor:
            loss = (weight**2).sum()  # noqa: B023
            weight.grad = torch.autograd.grad(loss, weight)[0]  # noqa: B023
            return loss.detach() + loss_of_this_rank  # noqa: B023

        for _ in range(2):
            optimizer.step(closure)
        assert optimizer.state[weight]["old_dirs"]
        if len(digests) == 2:
            optimizer.state[weight]["old_dirs"][0].add_(1)
        digests.append(state.digests()["optimizer"])
    assert digests[0] == digests[1] != digests[2]


# It keeps a history of gradients and a count, which change nothing: only they tell a wrong state from a right one.
OPTIMIZER = (
    """
class Keeps(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                kept = self.state[p].setdefault("kept", {"gradients": [], "count": 0})
                kept["gradients"] = [p.grad.clone(), *kept["gradients"][:1]]
                kept["count"] += 1
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
ddp = torch.nn.parallel.DistributedDataParallel(model)
optimizer = Keeps(model.parameters(), lr=0.1)
first = model.weight
"""
    + RESUME
    + """
    # restored
while done < 6:
    optimizer.zero_grad()
    ddp(torch.arange(4.0).reshape(1, 4) + rank + done).square().sum().mul(1e-3).backward()
    optimizer.step()
    done += 1
    # updated
    if done % 2 == 0 and rank == 0:"""
    + SAVE
    + """
    dist.barrier()
del ddp
dist.destroy_process_group()
"""
)
RANK_1_COUNTS = 'if (rank, done) == (1, 4): optimizer.state[first]["kept"]["count"] = 9'
RANK_1_REVERSES = 'if (rank, done) == (1, 3): optimizer.state[first]["kept"]["gradients"].reverse()'
EMPTIED = 'for kept in optimizer.state.values(): kept["kept"]["gradients"] = []'
RECOUNTED = 'for kept in optimizer.state.values(): kept["kept"]["count"] = 0'


def script(*, updated: str = "", restored: str = "") -> str:
    return OPTIMIZER.replace("# updated", updated).replace("# restored", restored)


@pytest.mark.parametrize(
    ("updated", "step", "at_the_end"),
    [
        pytest.param("", None, "valid", id="equal"),
        pytest.param(RANK_1_COUNTS, 5, "invalid", id="another count"),
        pytest.param(RANK_1_REVERSES, 4, "valid", id="another order of a history of two updates"),
    ],
)
def test_ranks_that_differ_within_a_container_alone_do_not_agree(
    run: Run, updated: str, step: int | None, at_the_end: str
) -> None:
    healthy = make_baseline(run(script(), args=("{checkpoints}",)))
    history = run(script(updated=updated), args=("{checkpoints}",))
    replicas, end = (GUARANTEES[name].check(history, healthy) for name in ("ReplicasAgree", "EndsLikeBaseline"))
    if step is None:
        assert replicas.outcome == "valid", replicas
    else:
        assert (replicas.outcome, replicas.rank, replicas.step) == ("invalid", 1, step), replicas
        assert replicas.seen["part"] == "optimizer"
    assert end.outcome == at_the_end, end


@pytest.mark.parametrize(
    ("restored", "outcome"),
    [
        pytest.param("", "valid", id="restored"),
        pytest.param(EMPTIED, "invalid", id="a history that is not"),
        pytest.param(RECOUNTED, "invalid", id="a count that is not"),
    ],
)
def test_what_is_restored_but_for_the_inside_of_a_container_is_seen(run: Run, restored: str, outcome: str) -> None:
    fault = Kill(rank=1, at=At(step=4, phase="backward"))
    history = run(script(restored=restored), fault, args=("{checkpoints}",), max_restarts=1)
    assert history.outcome.exit_code == 0
    found = {name: GUARANTEES[name].check(history, None) for name in ("RollbackExact", "ReplayIdentical")}
    assert {name: verdict.outcome for name, verdict in found.items()} == dict.fromkeys(found, outcome), found
    assert GUARANTEES["ReplicasAgree"].check(history, None).outcome == "valid"


def test_ranks_whose_optimizers_are_told_losses_of_their_own_agree(run: Run) -> None:
    history = run(
        """
        dist.init_process_group("gloo")
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        ddp = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)
        def closure():
            optimizer.zero_grad()
            loss = ddp(torch.arange(4.0).reshape(1, 4) + rank).square().sum()
            loss.backward()
            return loss
        for _ in range(3):
            optimizer.step(closure)
        show(loss=optimizer.state[model.weight]["prev_loss"])
        del ddp
        dist.destroy_process_group()
        """
    )
    found = GUARANTEES["ReplicasAgree"].check(history, None)
    assert (found.outcome, found.reason) == ("valid", "equal at 4 moments"), found
