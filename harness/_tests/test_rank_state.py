"""Digests of a training state that is looked at again and again: each change shows, and nothing is kept too long."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from harness.rank.digest import Digests, digest_of
from harness.rank.state import TrainingState


class Script:
    """A model, an optimizer that has stepped, and what the harness knows of them."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        torch.manual_seed(0)
        self.model: Any = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Sequential(nn.Linear(4, 2))).to(dtype)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.model(torch.ones(2, 4, dtype=dtype)).sum().backward()
        self.optimizer.step()
        self.state = known(self)

    @property
    def moment(self) -> torch.Tensor:
        moment: torch.Tensor = self.optimizer.state[self.model[0].weight]["exp_avg"]
        return moment


def known(script: Script) -> TrainingState:
    state = TrainingState()
    state.add_model(script.model)
    state.add_optimizer(script.optimizer)
    return state


def weight_of(script: Script) -> nn.Parameter:
    weight: nn.Parameter = script.model[0].weight
    return weight


def _replace_table(script: Script) -> None:
    module = script.model[2][0]
    module._parameters = {"weight": module.weight, "bias": nn.Parameter(torch.ones(2))}


def _replace_moment(script: Script) -> None:
    script.optimizer.state[weight_of(script)]["exp_avg"] = script.moment + 1


def _rename(script: Script) -> None:
    script.model[0]._parameters["w"] = script.model[0]._parameters.pop("weight")


def _reinterpret(script: Script) -> None:
    mean = script.model[1].running_mean
    mean.data = mean.data.view(torch.int32)


def _set_data(make: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Script], None]:
    def change(script: Script) -> None:
        weight_of(script).data = make(weight_of(script).data)

    return change


@pytest.mark.parametrize(
    "buffer",
    [
        torch.eye(3).to_sparse(),
        torch.empty(3, device="meta"),
        torch.ones(3).to(torch.bfloat16),
        torch.ones(0),
    ],
    ids=["sparse", "on the meta device", "bfloat16", "empty"],
)
def test_a_buffer_of_any_kind_has_a_digest(buffer: torch.Tensor) -> None:
    script = Script()
    before = script.state.digests()
    script.model.register_buffer("other", buffer)
    after = script.state.digests()
    assert after["buffers"] != before["buffers"]
    assert script.state.digests() == after
    if buffer.layout is not torch.strided:
        script.model.other = buffer * 2
        assert script.state.digests()["buffers"] != after["buffers"]


class Halves(torch.Tensor):
    """A wrapper, as those of quantized weights: its values are in two tensors, and it has no memory of its own."""

    @staticmethod
    def __new__(cls, one: torch.Tensor, two: torch.Tensor) -> Halves:
        return torch.Tensor._make_wrapper_subclass(cls, one.shape, dtype=one.dtype)

    def __init__(self, one: torch.Tensor, two: torch.Tensor) -> None:
        self.one, self.two = one, two

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["one", "two"], None

    @classmethod
    def __torch_dispatch__(cls, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        if call is torch.ops.aten.detach.default:
            return cls(args[0].one, args[0].two)
        raise NotImplementedError(call)


@pytest.mark.parametrize("numel", [4, 1 << 19], ids=["small", "large"])
def test_what_a_wrapper_holds_is_read_and_memory_that_was_freed_is_not(numel: int) -> None:
    two = torch.zeros(numel)
    digests = Digests()
    before = digests.of([(["w"], [Halves(torch.ones(numel), two)])])
    assert digests.again() is None
    two[numel - 1] = 1
    assert digests.of([(["w"], [Halves(torch.ones(numel), two)])]) != before
    freed = torch.ones(numel)
    freed.untyped_storage().resize_(0)
    assert digest_of(["w"], [freed]) == digest_of(["w"], [torch.ones(0)])


def test_a_parameter_that_is_not_there_yet_has_a_digest() -> None:
    state = TrainingState()
    model = nn.LazyLinear(2)
    state.add_model(model)
    before = state.digests()
    model(torch.ones(1, 3))
    assert state.digests()["params"] != before["params"]


def by_channel(scale: float, axis: int) -> torch.Tensor:
    scales, zero_points = torch.tensor([0.5, scale]), torch.tensor([0, 0])
    return torch.quantize_per_channel(torch.zeros(2, 2), scales, zero_points, axis, torch.qint8)


TURNED = torch.tensor([1 + 2j, 3 - 4j])
MEANINGS: dict[str, tuple[Callable[[], torch.Tensor], Callable[[], torch.Tensor]]] = {
    "a lazy conjugate": (lambda: TURNED, lambda: TURNED.conj()),
    "a lazy negative": (lambda: TURNED.imag, lambda: TURNED.conj().imag),
    "a lazy conjugate of part of a parameter": (lambda: nn.Parameter(TURNED), lambda: nn.Parameter(TURNED.conj())),
    "another scale": (
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.qint8),
        lambda: torch.quantize_per_tensor(torch.ones(3) * 2, 1.0, 0, torch.qint8),
    ),
    "another zero point": (
        lambda: torch.quantize_per_tensor(torch.zeros(3), 0.5, 2, torch.quint8),
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.quint8),
    ),
    "another type of the same integers": (
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.qint8),
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.quint8),
    ),
    "another scale of a channel": (lambda: by_channel(0.5, 0), lambda: by_channel(0.25, 0)),
    "another zero point of a channel": (
        lambda: torch.quantize_per_channel(torch.ones(2), torch.ones(2), torch.tensor([0, 1]), 0, torch.qint8),
        lambda: torch.quantize_per_channel(torch.tensor([0.0, 2]), torch.ones(2), torch.tensor([1, 0]), 0, torch.qint8),
    ),
    "channels of another dimension": (lambda: by_channel(0.25, 0), lambda: by_channel(0.25, 1)),
    "an inner tensor of another scale": (
        lambda: Halves(torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.qint8), torch.ones(1)),
        lambda: Halves(torch.quantize_per_tensor(torch.ones(3) * 2, 1.0, 0, torch.qint8), torch.ones(1)),
    ),
}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("what", MEANINGS)
def test_equal_bytes_that_mean_something_else_are_not_the_same(what: str) -> None:
    one, other = MEANINGS[what]
    found = [digest_of(["x"], [tensor]) for tensor in (one(), other(), one(), one(), other())]
    assert found == [found[0], found[1], found[0], found[0], found[1]]
    assert found[0] != found[1]


def test_a_lazy_conjugate_is_the_same_as_one_that_was_made() -> None:
    assert digest_of(["x"], [TURNED.conj()]) == digest_of(["x"], [TURNED.conj().resolve_conj()])
    assert digest_of(["x"], [TURNED.conj().imag]) == digest_of(["x"], [TURNED.conj().imag.resolve_neg()])


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_integers_of_half_a_byte_are_read_and_nothing_beyond_them() -> None:
    values = torch.tensor([[0.0, 1.0, 2.0], [0.0, 2.0, 1.0]])
    scales, zero_points = torch.ones(2), torch.zeros(2)
    halves = [
        torch.quantize_per_channel(v, scales, zero_points, 0, torch.quint4x2) for v in (values, values, 1 + values)
    ]
    one, again, other = (digest_of(["x"], [half]) for half in halves)
    assert one == again != other


CHANGES: dict[str, tuple[str, Callable[[Script], Any]]] = {
    "a parameter, in place": ("params", lambda s: weight_of(s).data[3].add_(1)),
    "a parameter's data": ("params", _set_data(lambda data: data + 1)),
    "a parameter's data, by a view of other strides": ("params", _set_data(torch.t)),
    "a parameter's data, by a view of another shape": ("params", _set_data(lambda data: data.view(2, 8))),
    "a parameter that is replaced": ("params", lambda s: setattr(s.model[0], "weight", nn.Parameter(torch.ones(4, 4)))),
    "a parameter that is replaced in the module's table": (
        "params",
        lambda s: s.model[0]._parameters.update(weight=nn.Parameter(torch.ones(4, 4))),
    ),
    "a module's table that is replaced": ("params", _replace_table),
    "a parameter that is swapped": (
        "params",
        lambda s: torch.utils.swap_tensors(weight_of(s), nn.Parameter(torch.ones(4, 4))),
    ),
    "a parameter that is renamed": ("params", _rename),
    "a parameter that is added to a module": (
        "params",
        lambda s: s.model[1].register_parameter("more", nn.Parameter(torch.ones(1))),
    ),
    "a parameter that is taken away": ("params", lambda s: delattr(s.model[2][0], "bias")),
    "a module that is added to one that had none": (
        "params",
        lambda s: s.model[0].add_module("more", nn.Linear(1, 1)),
    ),
    "a module that is added deep inside": ("params", lambda s: s.model[2].append(nn.Linear(1, 1))),
    "a module that is replaced": ("params", lambda s: s.model[2].__setitem__(0, nn.Linear(4, 2))),
    "parameters that only the optimizer has": (
        "params",
        lambda s: s.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))]}),
    ),
    "another model": ("params", lambda s: s.state.add_model(s.__dict__.setdefault("other", nn.Linear(2, 2)))),
    "a buffer, in place": ("buffers", lambda s: s.model[1].running_mean.add_(1)),
    "a buffer's data, by a view of another type": ("buffers", _reinterpret),
    "a buffer that is replaced": ("buffers", lambda s: setattr(s.model[1], "running_mean", torch.ones(4))),
    "a buffer that is added": ("buffers", lambda s: s.model[0].register_buffer("seen", torch.ones(1))),
    "an optimizer's state, in place": ("optimizer", lambda s: s.moment.add_(1)),
    "an optimizer's state that is replaced": ("optimizer", _replace_moment),
    "an optimizer's state that is added": (
        "optimizer",
        lambda s: s.optimizer.state[weight_of(s)].update(more=torch.ones(1)),
    ),
    "an optimizer's state that is forgotten": ("optimizer", lambda s: s.optimizer.state.pop(weight_of(s))),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_shows_in_the_next_digest_and_as_to_one_who_looks_for_the_first_time(what: str) -> None:
    where, change = CHANGES[what]
    script = Script()
    before = script.state.digests()
    assert script.state.digests() == before
    change(script)
    after = script.state.digests()
    assert after[where] != before[where]
    anew = known(script)
    if "other" in script.__dict__:
        anew.add_model(script.other)  # type: ignore[attr-defined]
    assert after == anew.digests()


def test_a_state_that_changes_at_every_update_is_read_as_by_one_who_looks_for_the_first_time() -> None:
    script = Script()
    seen = set()
    for _ in range(5):
        script.model(torch.ones(2, 4)).sum().backward()
        script.optimizer.step()
        digests = script.state.digests()
        assert digests == known(script).digests()
        seen.add(tuple(digests.values()))
    assert len(seen) == 5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_a_wrapped_model_has_the_digests_of_the_bare_one_in_any_type(dtype: torch.dtype) -> None:
    bare, wrapped = Script(dtype), Script(dtype)
    inner = wrapped.model
    wrapped.model = nn.Module()
    wrapped.model.module = inner
    assert known(wrapped).digests() == bare.state.digests()


def test_no_model_is_kept_alive_and_its_last_tensors_are_still_read() -> None:
    script = Script()
    nested = weakref.ref(script.model[2])
    before = script.state.digests()
    del script.model
    gc.collect()
    assert nested() is None
    assert script.state.digests() == before
