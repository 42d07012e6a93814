"""Digests of what a load returned: equal for equal contents, different for any difference that was stored."""

from __future__ import annotations

import collections
import dataclasses
import enum
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path, PurePosixPath
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.crashstates.ranks.content import loaded


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Point(NamedTuple):
    x: int
    y: int


class Line(NamedTuple):
    x: int
    z: int


@dataclasses.dataclass
class Saved:
    step: int
    model: Any


class Trainer:
    def __init__(self, step: int) -> None:
        self.step = step

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step}


def linear(bias: float = 0.0) -> torch.nn.Linear:
    module = torch.nn.Linear(2, 2)
    with torch.no_grad():
        module.weight.fill_(1.5)
        module.bias.fill_(bias)
    return module


def stepped(momentum: float) -> torch.optim.SGD:
    module = linear()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    for parameter in module.parameters():
        optimizer.state[parameter]["momentum_buffer"] = torch.full_like(parameter, momentum)
    return optimizer


def sparse(indices: list[list[int]], values: list[float]) -> torch.Tensor:
    return torch.sparse_coo_tensor(torch.tensor(indices), torch.tensor(values), (2,), check_invariants=True)


def shared() -> dict[str, torch.Tensor]:
    base = torch.arange(6.0)
    return {"a": base[:3], "b": base[3:]}


SAME = {
    "a dictionary in another order": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "an ordered dictionary and a plain one": (collections.OrderedDict(a=1), {"a": 1}),
    "a read-only view of a dictionary": (MappingProxyType({"a": 1}), {"a": 1}),
    "a set in another order": ({3, 1, 2}, {1, 2, 3}),
    "bytes and a bytearray": (b"ab", bytearray(b"ab")),
    "a path of another class": (Path("/a/b"), PurePosixPath("/a/b")),
    "a transposed tensor and its copy": (torch.arange(6).reshape(2, 3).T, torch.arange(6).reshape(2, 3).T.contiguous()),
    "tensors that share their storage and such that do not": (shared(), {k: v.clone() for k, v in shared().items()}),
    "a parameter and its data": (torch.nn.Parameter(torch.ones(2)), torch.ones(2)),
    "equal modules": (linear(), linear()),
    "equal optimizers": (stepped(1.0), stepped(1.0)),
    "a nan and a nan": (math.nan, math.nan),
    "arrays with other strides": (np.arange(6).reshape(2, 3).T, np.ascontiguousarray(np.arange(6).reshape(2, 3).T)),
    "a sparse tensor, coalesced or not": (
        sparse([[0, 0]], [1.0, 2.0]),
        sparse([[0]], [3.0]),
    ),
    "a conjugate and its copy": (torch.tensor([1 + 2j]).conj(), torch.tensor([1 - 2j])),
    "equal generators": (torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)),
}
DIFFERENT = {
    "nothing and an empty dictionary": (None, {}),
    "nothing and false": (None, False),
    "true and one": (True, 1),
    "one and 1.0": (1, 1.0),
    "zero and minus zero": (0.0, -0.0),
    "a number and its text": (1, "1"),
    "text and bytes": ("ab", b"ab"),
    "a path and its text": (Path("a"), "a"),
    "a list and a tuple": ([1, 2], (1, 2)),
    "a tuple and a named one": ((1, 2), Point(1, 2)),
    "a list in another order": ([1, 2], [2, 1]),
    "nested otherwise": ([1, [2, 3]], [1, 2, 3]),
    "a key and a value exchanged": ({"a": "b"}, {"b": "a"}),
    "keys of another type": ({1: 0}, {"1": 0}),
    "an item more": ({"a": 1}, {"a": 1, "b": None}),
    "enum members": (Colour.RED, Colour.BLUE),
    "an enum member and its value": (Colour.RED, 1),
    "a dataclass's field": (Saved(1, None), Saved(2, None)),
    "a dataclass and a dictionary": (Saved(1, None), {"step": 1, "model": None}),
    "a namespace's field": (SimpleNamespace(a=1), SimpleNamespace(a=2)),
    "what state_dict() returns": (Trainer(1), Trainer(2)),
    "one element of a tensor": (torch.zeros(4), torch.tensor([0.0, 0, 0, 1e-45])),
    "the dtype": (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
    "the dtype of equal bytes": (torch.zeros(2), torch.zeros(2, dtype=torch.int32)),
    "the shape": (torch.zeros(2, 3), torch.zeros(3, 2)),
    "no element and another shape": (torch.zeros(0, 3), torch.zeros(3, 0)),
    "a scalar tensor and a vector of one": (torch.tensor(1.0), torch.tensor([1.0])),
    "a tensor and an array": (torch.zeros(2), np.zeros(2, dtype=np.float32)),
    "nan payloads in a tensor": (
        torch.tensor([0x7FC00000], dtype=torch.int32).view(torch.float32),
        torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32),
    ),
    "half precisions": (torch.zeros(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.float16)),
    "one element of an array": (np.zeros(3), np.array([0, 0, 1.0])),
    "the dtype of an array": (np.zeros(2, np.int32), np.zeros(2, np.float32)),
    "the byte order of an array": (np.zeros(2, "<i4"), np.zeros(2, ">i4")),
    "an array of objects": (np.array([1, "a"], dtype=object), np.array([1, "b"], dtype=object)),
    "a module's bias": (linear(), linear(bias=1.0)),
    "an optimizer's momentum": (stepped(1.0), stepped(2.0)),
    "a dtype": (torch.float16, torch.bfloat16),
    "a device": (torch.device("cpu"), torch.device("meta")),
    "generators further on": (torch.Generator().manual_seed(3), torch.Generator().manual_seed(4)),
    "complex numbers": (1 + 2j, 1 - 2j),
    "named tuples of other fields": (Point(1, 2), Line(1, 2)),
}
REFUSED = {
    "an object": (object(), ["the value is a object", "state_dict()"]),
    "a function": (len, ["builtin_function_or_method"]),
    "a class": (Trainer, ["the value is a type"]),
    "a generator": ((n for n in "ab"), ["generator"]),
    "an object deep inside": ({"a": [1, (2, Fraction(1, 2))]}, ["the value['a'][1][1]", "fractions.Fraction"]),
    "an object in a dataclass": (Saved(1, object()), ["the value.model"]),
    "an object in a state_dict": ({"t": SimpleNamespace(x=object())}, ["the value['t']['x']"]),
    "a meta tensor": (torch.zeros(2, device="meta"), ["the meta device"]),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_equal(one: object, other: object) -> None:
    assert loaded(one).digest == loaded(other).digest


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_different(one: object, other: object) -> None:
    assert loaded(one).digest != loaded(other).digest
    assert loaded({"deep": [one]}).digest != loaded({"deep": [other]}).digest
    assert loaded(one).digest == loaded(one).digest


@pytest.mark.parametrize(("value", "told"), REFUSED.values(), ids=REFUSED)
def test_refused_with_the_place_and_the_cure(value: object, told: list[str]) -> None:
    with pytest.raises(TypeError) as refused:
        loaded(value)
    for part in (*told, "let load return"):
        assert part in str(refused.value)


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[object] = [1]
    value.append({"again": value})
    with pytest.raises(TypeError, match=r"the value\[1\]\['again'\] contains itself"):
        loaded(value)


def test_a_value_that_occurs_twice_is_not_a_circle() -> None:
    tensor = torch.ones(1)
    assert loaded([tensor, tensor]).digest == loaded([tensor, tensor.clone()]).digest


NOTHING_BUT_DATA: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
)


@given(NOTHING_BUT_DATA, NOTHING_BUT_DATA)
def test_a_digest_tells_any_two_values_apart(one: object, other: object) -> None:
    # repr tells True from 1 and 0.0 from -0.0, and dictionaries made here in the same order compare by order
    assert (loaded(one).digest == loaded(other).digest) == (repr(_ordered(one)) == repr(_ordered(other)))


def _ordered(value: Any) -> Any:
    match value:
        case dict():
            return {key: _ordered(value[key]) for key in sorted(value)}
        case list() | tuple():
            return type(value)(map(_ordered, value))
        case _:
            return value


SUMMARIES = {
    "dict(model: 2 tensors, step: 3)": {"model": {"w": torch.ones(1), "b": torch.ones(1)}, "step": 3},
    "None": None,
    "3": 3,
    "'abc'": "abc",
    "str of 1000": "x" * 1000,
    "tensor[2, 3]": torch.ones(2, 3),
    "1 tensor": [torch.ones(1)],
    "list of 9": list(range(9)),
    "Saved(step: 3, model: tensor[1])": Saved(3, torch.ones(1)),
    "Linear": linear(),
    "dict of 40": {str(n): n for n in range(40)},
    "dict()": {},
    "int of 20001 bits": 1 << 20000,
    r"dict(\udcff: 1)": {"\udcff": 1},
}


@pytest.mark.parametrize("words", SUMMARIES)
def test_summary(words: str) -> None:
    assert loaded(SUMMARIES[words]).summary == words


def test_only_nothing_is_nothing() -> None:
    assert loaded(None).is_nothing
    others: list[object] = [{}, [], "", "nothing", 0, False]
    assert not any(loaded(value).is_nothing for value in others)


def test_torch_is_not_imported_for_it() -> None:
    text = (
        "import sys; from harness.crashstates.ranks.content import loaded; loaded({'a': [1.0]}); "
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0
