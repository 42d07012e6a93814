"""What optimizers keep of the parameters, as they found it in earlier updates: moments, histories, counts of steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, compress, count
from operator import is_, is_not
from typing import Any

import torch

from harness.rank.leaves import CONTAINERS, PLAIN, Leaf, leaves
from harness.rank.unread import read

Groups = Sequence[Sequence[torch.Tensor]]  # the parameters of each group of some optimizers


class Moments:
    """Names and tensors of every parameter's state, in the order of the parameter groups, then of what else is kept.

    Hyperparameters are left out: a scheduler changes them between the update and the next step.

    Attributes:
        beside: the numbers and words that stand there, as text; their names follow those of the tensors.
    """

    def __init__(self) -> None:
        self.names: list[object] = []
        self.tensors: list[torch.Tensor] = []
        self.beside = b""
        self._plain: list[Leaf] = []  # that ``beside`` is made of
        self._held: list[object] = []  # all that they were found from
        self._kept: list[dict[Any, Any]] = []
        self._sizes: list[int] = []  # of the groups and of the states
        self._is_flat = False  # no state holds a container, which may change and still be the same one
        self._may_change: set[int] = set()  # places of ``_held``, see _has_other_numbers
        self._told_losses: set[int] = set()  # identities of optimizers

    def told_losses(self, optimizer: torch.optim.Optimizer) -> None:
        """It is given a closure, so that a float that it keeps may be a loss, of this rank's own batch: LBFGS'."""
        self._told_losses.add(id(optimizer))

    def look(self, optimizers: Sequence[torch.optim.Optimizer], groups: Groups) -> bool:
        """Find them anew if there are others now; returns whether it did.

        Args:
            groups: of these optimizers.
        """
        tables = (each.state if type(each.state) is defaultdict else _state(each) for each in optimizers)
        states = [*chain.from_iterable(table.values() for table in tables)]
        # Some keep other things beside their parameters' states.
        is_usual = {*map(type, states)} == {dict}
        kept = states if is_usual else [state for state in states if isinstance(state, dict)]
        sizes = [*map(len, chain(groups, kept))]
        if (
            self._is_flat
            and sizes == self._sizes
            and len(kept) == len(states)
            and (
                all(map(is_, _within(groups, kept), self._held))
                or self._has_other_numbers([*_within(groups, kept)], kept)
            )
        ):
            return False
        self._held, self._kept, self._sizes = [*_within(groups, kept)], kept, sizes
        self._find(optimizers)
        return True

    def _has_other_numbers(self, held: list[object], kept: list[dict[Any, Any]]) -> bool:
        """Whether nothing else has changed; a count of steps is another object after each update."""
        changed = [*compress(count(), map(is_not, held, self._held))]
        if (
            not self._may_change.issuperset(changed)
            or any(type(held[place]) is not type(self._held[place]) for place in changed)
            or not all(map(is_, kept, self._kept))
        ):
            return False
        self._held = held
        self._read_numbers()
        return True

    def _find(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        first_value = len(self._held) - sum(map(len, self._kept))
        self._is_flat = not any(issubclass(kind, CONTAINERS) for kind in set(map(type, self._held)))
        self._may_change = {
            place for place, value in enumerate(self._held) if place >= first_value and isinstance(value, PLAIN)
        }
        found = [leaf for optimizer in optimizers for leaf in self.leaves_of(optimizer)]
        tensors = [leaf for leaf in found if isinstance(leaf.value, torch.Tensor)]
        self._plain = [leaf for leaf in found if not isinstance(leaf.value, torch.Tensor)]
        self.names = [leaf.path for leaf in (*tensors, *self._plain)]
        self.tensors = [leaf.value for leaf in tensors]
        self._read_numbers()

    def leaves_of(self, optimizer: torch.optim.Optimizer) -> Iterator[Leaf]:
        """Of each parameter's state, in the order of the groups, then of what is kept beside."""
        state = _state(optimizer)
        parameters = [(i, each) for group in optimizer.param_groups for i, each in enumerate(group["params"])]
        others = [(key, key) for key in sorted(key for key in state if isinstance(key, str))]
        has_losses = id(optimizer) in self._told_losses
        for name, key in (*parameters, *others):
            if key in state:
                found: list[Leaf] = read("what an optimizer keeps", partial(list, leaves(state, key, (name,))), [])
                yield from (leaf for leaf in found if not (has_losses and isinstance(leaf.value, float)))

    def _read_numbers(self) -> None:
        try:
            self.beside = repr([leaf.value for leaf in self._plain]).encode() if self._plain else b""
        except Exception:  # an integer of more digits than Python writes, say
            self.beside = "\n".join(_written(leaf.value) for leaf in self._plain).encode()


def _written(value: Any) -> str:
    if isinstance(value, int):
        return hex(value)
    kind = type(value).__name__
    return read(f"a {kind} that an optimizer keeps", partial(repr, value), kind)


def _state(optimizer: torch.optim.Optimizer) -> Mapping[Any, Any]:
    """As torch means it, a table; what else it is stands in one, under a name of its own."""
    state: object = optimizer.state
    return state if isinstance(state, Mapping) else {"state": state}


def _within(groups: Groups, kept: Sequence[dict[Any, Any]]) -> Iterator[object]:
    """The parameters; of their states all names, then all values."""
    return chain.from_iterable(chain(groups, kept, map(dict.values, kept)))
