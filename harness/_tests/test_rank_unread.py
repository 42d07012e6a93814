"""Nothing that a script trains on, keeps or leaves with ends its training because it is recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, MutableMapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch

from harness._tests.launched import Run, shown
from harness._tests.test_rank_state import Script, known, weight_of
from harness.checks import GUARANTEES
from harness.rank import unread
from harness.rank.digest import digest_of, magnitudes
from harness.rank.recorder import Recorder
from harness.wire import Kind, output_path

HUGE = 10**5000  # more digits than Python writes


@pytest.fixture(autouse=True)
def _nothing_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread, "_said", set())


def nested(*lengths: int, layout: torch.layout, of: float = 1.0) -> torch.Tensor:
    made: torch.Tensor = torch.nested.nested_tensor([torch.full((n, 3), of) for n in lengths], layout=layout)
    return made


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@pytest.mark.parametrize("layout", [torch.jagged, torch.strided], ids=["jagged", "nested"])
def test_nested_tensors_are_read_values_and_lengths(layout: torch.layout) -> None:
    def digest(tensor: torch.Tensor) -> str:
        return digest_of(["x"], [tensor])

    one = digest(nested(2, 4, layout=layout))
    assert one == digest(nested(2, 4, layout=layout))
    assert one == digest(torch.nn.Parameter(nested(2, 4, layout=layout)))
    assert len({one, digest(nested(4, 2, layout=layout)), digest(nested(2, 4, layout=layout, of=2.0))}) == 3
    ((name, numel, total, norm),) = magnitudes(["x"], [nested(2, 4, layout=layout)])
    assert (name, numel, total) == ("x", 18, 18.0)
    assert norm == pytest.approx(18**0.5)


class Stubborn(MutableMapping[Any, Any]):
    """A table that refuses to be read."""

    def __getitem__(self, key: Any) -> Any:
        raise RuntimeError("not from here")

    def __setitem__(self, key: Any, value: Any) -> None: ...
    def __delitem__(self, key: Any) -> None: ...

    def __iter__(self) -> Iterator[Any]:
        return iter(["one"])

    def __len__(self) -> int:
        return 1


class Shy(Fraction):
    """A number that does not say which."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


def _replace_state(state: Any) -> Callable[[Script], None]:
    def change(script: Script) -> None:
        script.optimizer.state = state

    return change


def _keep(value: Any) -> Callable[[Script], None]:
    def change(script: Script) -> None:
        script.optimizer.state[weight_of(script)]["kept"] = value

    return change


ODD: dict[str, tuple[Callable[[Script], None], bool]] = {  # whether it is read all the same
    "a state that is a list": (_replace_state([torch.ones(2), 3]), True),
    "a state that is none": (_replace_state(None), True),
    "a state that is an object": (_replace_state(object()), True),
    "an integer of many digits": (_keep(HUGE), True),
    "one in a list": (_keep([HUGE, torch.ones(1)]), True),
    "a jagged tensor": (_keep(nested(2, 1, layout=torch.jagged)), True),
    "a table that refuses": (_keep(Stubborn()), False),
}


@pytest.mark.parametrize("name", ODD)
def test_whatever_an_optimizer_keeps_recording_goes_on(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    change, is_read = ODD[name]
    script = Script()
    before = script.state.digests()
    change(script)
    after = [script.state.digests() for _ in range(2)]
    assert after[0] == after[1] == known(script).digests()
    assert after[0]["optimizer"] != before["optimizer"]
    assert after[0]["params"] == before["params"]
    said = capsys.readouterr().err
    assert said.count("chaos: what an optimizer keeps cannot be read and is compared with nothing") == (not is_read)


def test_integers_of_many_digits_are_told_apart() -> None:
    digests = []
    for value in (HUGE, HUGE + 1):
        script = Script()
        _keep(value)(script)
        digests.append(script.state.digests()["optimizer"])
    assert digests[0] != digests[1]


def test_a_number_that_cannot_be_written_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    script = Script()
    _keep([Shy(3), 4])(script)
    assert script.state.digests() == script.state.digests()
    assert capsys.readouterr().err.count("a Shy that an optimizer keeps cannot be read") == 1


def test_a_field_that_cannot_be_written_leaves_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder(tmp_path / "events.jsonl")
    recorder.emit(Kind.EXIT, code=HUGE, sources=["a"])
    recorder.emit(Kind.EXIT, code=HUGE)
    recorder.trim()
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [line.get("sources") for line in lines] == [["a"], None]
    assert all("code" not in line for line in lines)
    assert capsys.readouterr().err.count("the field code of an event cannot be read") == 1


ODD_SCRIPT = """
class Odd(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {})  # no learning rate
        self.state = [10**5000, torch.zeros(2)]
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data -= 0.1 * p.grad
        self.state[1] += 1
class Ragged(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 1)
        self.register_buffer("lengths", torch.nested.nested_tensor([torch.ones(2), torch.ones(1)], layout=torch.jagged))
    def forward(self, x):
        return self.linear(x).values()
dist.init_process_group("gloo")
torch.manual_seed(0)
model = Ragged()
optimizer = Odd(model.parameters())
batches = [[torch.full((n, 3), float(n)) for n in (2, 1)] for _ in range(2)]
ragged = lambda items: torch.nested.nested_tensor(items[0], layout=torch.jagged)
for batch in torch.utils.data.DataLoader(batches, batch_size=1, collate_fn=ragged):
    optimizer.zero_grad(set_to_none=True)
    model(batch).sum().backward()
    optimizer.step()
show(count=optimizer.state[1].tolist())
dist.destroy_process_group()
"""


def test_a_job_of_odd_tensors_odd_states_and_no_learning_rate_is_trained_and_recorded(run: Run, tmp_path: Path) -> None:
    history = run(ODD_SCRIPT)
    said = output_path(tmp_path / history.plan.name, 0, 0, "stderr").read_text()
    assert history.outcome.exit_code == 0, said
    assert shown(tmp_path, history, 0)["count"] == [2.0, 2.0]
    updates = history.of(Kind.UPDATE, rank=0)
    assert [(e.step, e.data["lr"], e.data["ids"]) for e in updates] == [(1, [], [0]), (2, [], [1])]
    for part in ("params", "optimizer"):
        assert updates[0].data[part] != updates[1].data[part]
    assert history.damaged == ()
    assert GUARANTEES["ReplicasAgree"].check(history, None).outcome == "valid"
