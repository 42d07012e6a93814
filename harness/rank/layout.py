"""Whether tensors lie where they lay before, in the shape and of the type they had: asked after every update.

Of a hundred small tensors to ask each one for its shape, strides and type takes three times as long as to read all
their bytes. torch's compiler has the same question before it runs what it compiled, and asks it of all in one call;
that is private to torch, so it is used only if it tells apart what it has to.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import torch

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
_Tensor: Any = torch.Tensor
_address, _is_contiguous, _is_conj, _is_neg = _Tensor.data_ptr, _Tensor.is_contiguous, _Tensor.is_conj, _Tensor.is_neg
_shape, _dtype = _Tensor.shape.__get__, _Tensor.dtype.__get__
_MEANINGS = (type, _shape, _dtype, _is_contiguous, _is_conj, _is_neg)


class Layout:
    """Where stock tensors lie now, and what their memory means.

    Attributes:
        addresses: of each tensor's first element.

    Raises:
        ValueError: one is no stock tensor (a subclass' may lie anywhere).
        RuntimeError: one has no memory of its own; it is sparse, say, or on the meta device.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        if not _PLAIN.issuperset(map(type, tensors)):
            raise ValueError("not all are stock tensors")
        if any(tensor.is_nested for tensor in tensors):  # to ask one for its shape may end the process
            raise ValueError("not all have a shape")
        self.addresses: list[int] = [*map(_address, tensors)]
        self._means_the_same = _at_once(tensors) or _one_by_one(tensors)

    def is_of(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether these have it now; True only if they do."""
        try:
            # In this order: torch's check takes no other number of tensors.
            return [*map(_address, tensors)] == self.addresses and self._means_the_same(*tensors)
        except RuntimeError:  # one has lost its memory
            return False


def _one_by_one(tensors: Sequence[torch.Tensor]) -> Callable[..., bool]:
    def meaning(*tensors: torch.Tensor) -> list[object]:
        return [*chain.from_iterable(map(each, tensors) for each in _MEANINGS)]

    before = meaning(*tensors)
    return lambda *now: meaning(*now) == before


def _at_once(tensors: Sequence[torch.Tensor]) -> Callable[..., bool] | None:
    """The check of torch's compiler for these; None if it is not to be had, or does not take them."""
    if not tensors or (guards := _proved_guards()) is None:
        return None
    check = _check(guards, tensors)
    return check if check(*tensors) else None  # it takes no tensor twice


def _check(guards: Any, tensors: Sequence[torch.Tensor]) -> Callable[..., bool]:
    # None: no dimension may be of another size or stride.
    check: Callable[..., bool] = guards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
    return check


@functools.cache
def _proved_guards() -> Any:
    """torch's class of such checks, if it tells apart other shapes, strides, types, classes and signs; else None."""
    guards = getattr(getattr(getattr(torch._C, "_dynamo", None), "guards", None), "TensorGuards", None)
    same, turned = torch.zeros(2, 2), torch.zeros(2, 2, dtype=torch.complex64)
    unlike = (
        (same, torch.zeros(4, 1)),
        (same, torch.zeros(1, 2)),
        (same, torch.zeros(2, 2).t()),
        (same, torch.zeros(2, 2, dtype=torch.int32)),
        (same, torch.nn.Parameter(torch.zeros(2, 2))),
        (turned, turned.conj()),
        (turned.imag, turned.conj().imag),  # which is lazily negated
    )
    try:
        tells = all(check(one) and not check(other) for one, other in unlike for check in [_check(guards, [one])])
        return guards if tells and _check(guards, [same])(torch.ones(2, 2)) else None
    except Exception:  # of any kind: another version of torch need not even have the same arguments
        return None
