"""Which of the batches that were handed out a forward pass trains on.

Not each batch that was read is trained on: after a resume many scripts read and pass over what was trained on before,
some read a batch ahead, and evaluation reads its own. Where the model's inputs are a batch's own tensors (on the CPU,
as a rule) their addresses tell; where they were copied, order does.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

import torch

EARLIER = -1  # no loader of this process
_STOCK = {torch.Tensor}
_address = methodcaller("data_ptr")


@dataclass(slots=True)
class Batch:
    """One batch that a DataLoader handed out.

    Attributes:
        loader: its number.
        ids: the sample ids as a JSON list; None if they are unknown.
        addresses: of its tensors.
        tensor: one of them, for as long as the script keeps it; None: it has none.
    """

    loader: int
    epoch: int
    ids: str | None
    addresses: set[int]
    tensor: weakref.ref[torch.Tensor] | None = None

    @classmethod
    def of(cls, loader: int, epoch: int, ids: str | None, content: Any) -> Batch:
        tensors = tensors_in(content)
        return cls(loader, epoch, ids, {*map(_address, tensors)}, weakref.ref(tensors[0]) if tensors else None)

    @classmethod
    def earlier(cls, ids: list[int]) -> Batch:
        """What an earlier launch used of the update that a resumed script goes on with."""
        return cls(loader=EARLIER, epoch=0, ids=str(ids), addresses=set())

    @property
    def num_samples(self) -> int | None:
        """None if it is unknown."""
        return None if self.ids is None else len(self.ids.split(","))

    @property
    def is_kept(self) -> bool:
        return self.tensor is not None and self.tensor() is not None


class WaitingBatches:
    """Batches that were handed out and not used yet, the oldest first."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        self._evaluated: list[Batch] = []  # by the last evaluation

    def append(self, batch: Batch) -> None:
        self._batches.append(batch)

    def evaluated(self) -> int | None:
        """What was evaluated came from the loader that was read last; another one's batch may wait for training.

        Returns:
            that loader's number; None if no batch waits.
        """
        if not self._batches:
            return None
        read_last = self._batches[-1].loader
        self._evaluated = [batch for batch in self._batches if batch.loader == read_last]
        self._batches = [batch for batch in self._batches if batch.loader != read_last]
        return read_last

    def not_evaluated(self) -> None:
        """What was evaluated last waits again: it is trained on, by a model in evaluation mode."""
        self._batches = [*self._evaluated, *self._batches]
        self._evaluated = []

    def trained_on(self, inputs: Any, *, is_first: bool) -> list[Batch]:
        """Take out and return the batches that a forward pass with ``inputs`` uses.

        Args:
            is_first: nothing was trained on in this process yet, so what the same loader gave before, and the script
                did not keep, was passed over.
        """
        if not self._batches and self._evaluated:  # another model may have looked at it first
            given = addresses(inputs)
            used = [batch for batch in self._evaluated if not batch.addresses.isdisjoint(given)]
            self._evaluated = []
            return used
        if len(self._batches) < 2:  # nothing to choose from
            used, self._batches = self._batches, []
            return used
        given = addresses(inputs)
        met = [batch for batch in self._batches if not batch.addresses.isdisjoint(given)]
        if len(met) == 1 and met[0] is self._batches[0] and not is_first:
            del self._batches[0]  # as a rule: micro-batches that were read together, one after the other
            return met
        # Of equal addresses the newest counts: a batch that was passed over is freed, and the next one takes its place.
        matched = {b.loader: i for i, b in enumerate(self._batches) if b.addresses & given}
        if not matched and (still_there := [b for b in self._batches if b.is_kept]):
            # Copied, or given by name: the script still has what it read ahead, and trains on it in order.
            first = {batch.loader: batch for batch in reversed(still_there)}
            self._batches = [batch for batch in still_there if batch is not first[batch.loader]]
            return [*reversed(first.values())]
        used, waiting = [], []
        for index, batch in enumerate(self._batches):
            newest = matched.get(batch.loader)
            if newest is None:
                is_last = all(later.loader != batch.loader for later in self._batches[index + 1 :])
                is_passed_over = is_first and not is_last and not batch.is_kept
                if not is_passed_over and not matched:
                    used.append(batch)
                elif not is_passed_over:
                    waiting.append(batch)
            elif index == newest:
                used.append(batch)
            elif index > newest:
                waiting.append(batch)  # read ahead
        self._batches = waiting
        return used


def addresses(values: Any) -> set[int]:
    """Where the tensors among ``values`` lie, in mappings, lists and tuples too."""
    return {*map(_address, tensors_in(values))}


def tensors_in(values: Any) -> list[torch.Tensor]:
    """The tensors among ``values``, in mappings, lists and tuples too."""
    while isinstance(values, (list, tuple)):
        if {*map(type, values)} == _STOCK:  # as a rule; this comes several times an update, when the caches are cold
            return [*values]
        if len(values) != 1:
            break
        values = values[0]
    found: list[torch.Tensor] = []
    above: list[Iterable[Any]] = [(values,)]  # not a function that calls itself
    while above:
        for value in above.pop():
            if isinstance(value, torch.Tensor):
                found.append(value)
            elif isinstance(value, (list, tuple)):
                above.append(value)
            elif isinstance(value, Mapping):
                above.append(value.values())
    return found


def rebuilt(values: Any, edit: Callable[[torch.Tensor], torch.Tensor], above: frozenset[int] = frozenset()) -> Any:
    """A copy in which each tensor is edited, in tuples, lists, mappings and attributes; what holds none is no copy.

    Args:
        above: identities of what holds these values: an object may refer to one that holds it.
    """
    if isinstance(values, torch.Tensor):
        return edit(values)
    if id(values) in above or isinstance(values, (type, torch.nn.Module)) or callable(values):
        return values
    above |= {id(values)}
    if isinstance(values, (tuple, list)):
        parts = [rebuilt(value, edit, above) for value in values]
        if all(new is old for new, old in zip(parts, values, strict=True)):
            return values
        if isinstance(values, list):
            return parts
        return type(values)(*parts) if hasattr(values, "_fields") else tuple(parts)
    is_mapping = isinstance(values, MutableMapping)
    members = dict(values) if is_mapping else _attributes(values)
    changed = {name: new for name, old in members.items() if (new := rebuilt(old, edit, above)) is not old}
    if not changed:
        return values
    copied = copy.copy(values)
    for name, new in changed.items():
        if is_mapping:
            copied[name] = new
        else:
            object.__setattr__(copied, name, new)  # a frozen dataclass refuses any other way
    return copied


def _attributes(values: Any) -> dict[str, Any]:
    """Those of an object, whether it keeps them in a dictionary, in slots, or in both."""
    slots = {name for of in type(values).__mro__ for name in _names(vars(of).get("__slots__", ()))}
    named = slots - {"__dict__", "__weakref__"}
    return {name: getattr(values, name) for name in named if hasattr(values, name)} | getattr(values, "__dict__", {})


def _names(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)
