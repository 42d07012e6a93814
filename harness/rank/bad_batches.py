"""Batches that a fault changes, withholds, repeats or delays between the DataLoader and the script.

Installed only in a process that has such a fault to come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import torch

from harness.faults.batch import BatchFault
from harness.rank.batches import Batch, WaitingBatches, rebuilt
from harness.rank.steps import Steps
from harness.rank.triggers import Fired, Triggers

_LAST = "_chaos_last"  # attribute of an iterator: its pass, the batch that it handed out last, and that one's index


class Bookkeeping(Protocol):
    """What ``harness.rank.loader`` knows of an iterator."""

    def pass_of(self, iterator: Any) -> Any:
        """Its current pass, with ``loader``, ``epoch`` and ``batches``; None if it is not on record."""

    def drawn_by(self, iterator: Any) -> deque[Any]:
        """What its sampler drew and is not on record yet; the first is that of the batch read last. May be empty."""

    def ids_of(self, iterator: Any, drawn: Any) -> list[int] | None:
        """The sample ids of what was drawn; None if they are unknown."""


class _TrainedOn(WaitingBatches):
    """Also knows which data sets have been trained on: a script may make a new loader of one for each epoch."""

    def __init__(self) -> None:
        super().__init__()
        # Identities: whoever holds a data set of the script's own class holds the script's names, DDP object and all.
        self.data_sets: dict[int, int] = {}  # of each loader, by its number
        self._trained_on: set[int] = set()

    def trained_on(self, inputs: Any, *, is_first: bool) -> list[Batch]:
        used = super().trained_on(inputs, is_first=is_first)
        self._trained_on |= {self.data_sets[batch.loader] for batch in used}
        return used

    def may_train_on(self, loader: int) -> bool:
        """Whether a batch of this loader is one to train on, as far as can be told."""
        return not self._trained_on or self.data_sets[loader] in self._trained_on


def with_faults(
    read: Callable[[Any], Any], triggers: Triggers, steps: Steps, books: Bookkeeping
) -> Callable[[Any], Any]:
    """An iterator's ``__next__`` that lets the faults of the plan act on what ``read`` gives."""
    steps.waiting = trained_on = _TrainedOn()

    def faulty(iterator: Any) -> Any:
        batch = read(iterator)
        current = books.pass_of(iterator)
        if current is None:
            return batch
        trained_on.data_sets[current.loader] = id(iterator._dataset)
        if not trained_on.may_train_on(current.loader):
            return batch
        if (fired := triggers.at_batch(current.loader, current.epoch, current.batches)) is not None:
            batch = fired.fault.read(_Reading(iterator, read, fired, books, batch))
        drawn = books.drawn_by(iterator)
        # In containers of its own: the script may take those that it is given apart.
        iterator.__dict__[_LAST] = current, rebuilt(batch, torch.Tensor.detach), drawn[0] if drawn else None
        return batch

    return faulty


class _Reading:
    """See harness.faults.batch.Reading."""

    def __init__(
        self, iterator: Any, read: Callable[[Any], Any], fired: Fired[BatchFault], books: Bookkeeping, batch: Any
    ) -> None:
        self._iterator, self._read, self._fired, self._books = iterator, read, fired, books
        self.batch = batch

    def tell(self, **measured: Any) -> None:
        self._fired.tell(**measured)

    def changed(self, edit: Callable[[Any], Any]) -> Any:
        tensors: list[torch.Tensor] = []
        elements: list[int] = []

        def change(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.layout is not torch.strided:
                return tensor
            edited: torch.Tensor = edit(tensor)
            tensors.append(tensor)
            elements.append(int((edited != tensor).sum()))
            return edited

        batch = rebuilt(self.batch, change)
        self.tell(tensors=len(tensors), elements=sum(elements))
        return batch

    def previous(self) -> Any:
        current, batch, index = self._iterator.__dict__.get(_LAST, (None, None, None))
        is_repeated = current is self._books.pass_of(self._iterator)
        drawn = self._books.drawn_by(self._iterator)
        lost = self._ids(drawn)
        if is_repeated and drawn:
            drawn[0] = index
        self.tell(is_repeated=is_repeated, lost=lost, repeated=self._ids(drawn))
        return batch if is_repeated else self.batch

    def next(self) -> Any:
        drawn = self._books.drawn_by(self._iterator)
        self.tell(lost=self._ids(drawn))
        if drawn:
            drawn.popleft()
        return self._read(self._iterator)

    def _ids(self, drawn: deque[Any]) -> list[int] | None:
        return self._books.ids_of(self._iterator, drawn[0]) if drawn else None
