"""Whether tensors lie where they lay: as torch's own check tells it, and without that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from harness.rank import layout
from harness.rank.layout import Layout


@pytest.fixture(params=["in one call", "one by one"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "one by one":
        monkeypatch.setattr(layout, "_proved_guards", lambda: None)


def tensors() -> list[torch.Tensor]:
    turned = torch.ones(2, dtype=torch.complex64)
    return [nn.Parameter(torch.ones(2, 2)), nn.Buffer(torch.ones(2, 2)), torch.ones(()), turned, turned.imag]


def _set_data(make: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[list[torch.Tensor]], object]:
    def change(found: list[torch.Tensor]) -> None:
        found[0].data = make(found[0].data)

    return change


CHANGES: dict[str, Callable[[list[Any]], object]] = {
    "another place": _set_data(torch.clone),
    "other strides": _set_data(torch.t),
    "another shape": _set_data(lambda data: data.view(4)),
    "a part": _set_data(lambda data: data[:1]),
    "another type": lambda found: found.__setitem__(2, found[2].view(torch.int32)),
    "another class": lambda found: found.__setitem__(0, found[0].detach()),
    "one less": lambda found: found.pop(),
    "one more": lambda found: found.append(torch.ones(1)),
    "another order": lambda found: found.__setitem__(slice(0, 2), found[1::-1]),
    "no memory": lambda found: found.__setitem__(2, torch.ones((), device="meta")),
    "a lazy conjugate": lambda found: found.__setitem__(3, found[3].conj()),
    "a lazy negative": lambda found: found.__setitem__(4, found[3].conj().imag),
    "none in one piece": lambda found: found.__setitem__(0, torch.eye(2).to_sparse()),
}


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_seen(what: str) -> None:
    found = tensors()
    before = Layout(found)
    CHANGES[what](found)
    assert not before.is_of(found)


@pytest.mark.usefixtures("way")
def test_other_values_in_the_same_place_are_no_change() -> None:
    found = tensors()
    before = Layout(found)
    for tensor in found:
        tensor.data.add_(1)
    assert before.is_of(found)
    with torch.no_grad():
        assert before.is_of(found)


@pytest.mark.usefixtures("way")
def test_a_tensor_that_is_there_twice_is_no_change() -> None:
    twice = 2 * tensors()[:1]
    assert Layout(twice).is_of(twice)


@pytest.mark.usefixtures("way")
def test_no_tensors_are_a_layout_too() -> None:
    assert Layout([]).is_of([])
    assert not Layout([]).is_of([torch.ones(1)])


@pytest.mark.parametrize(
    ("tensor", "error"),
    [
        (torch.eye(2).to_sparse(), RuntimeError),
        (torch.ones(2, device="meta").as_subclass(type("Own", (torch.Tensor,), {})), ValueError),
    ],
    ids=["sparse", "of another class"],
)
def test_what_has_no_memory_of_its_own_or_may_lie_anywhere_has_no_layout(
    tensor: torch.Tensor, error: type[Exception]
) -> None:
    with pytest.raises(error):
        Layout([tensor])


def _takes_anything(*_: torch.Tensor, **__: object) -> Any:
    return type("Check", (), {"check": staticmethod(lambda *_: True)})


@pytest.mark.parametrize("found", [None, object(), _takes_anything], ids=["none", "no class", "one that sees nothing"])
def test_a_check_of_torch_that_does_not_tell_is_not_used(monkeypatch: pytest.MonkeyPatch, found: object) -> None:
    monkeypatch.setattr("torch._C._dynamo.guards.TensorGuards", found)
    monkeypatch.setattr(layout, "_proved_guards", layout._proved_guards.__wrapped__)
    assert layout._proved_guards() is None


def test_the_check_of_the_torch_in_use_tells() -> None:
    assert layout._proved_guards() is not None
