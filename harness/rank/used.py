"""The batches that the update which is being made has used so far: of micro-batches, where it takes several."""

from __future__ import annotations

import json

import torch

from harness.rank.batches import Batch


class UsedBatches:
    """Those whose forward pass was trained on, in order, and how many of them have had their backward pass.

    Attributes:
        batches: since the last update.
        has_loaders: whether any DataLoader has handed out a batch; without, no sample has a number.
        num_summed: so many of them have had their backward pass.
    """

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.has_loaders = False
        self.num_summed = 0
        self._looked_at: torch.nn.Parameter | None = None  # whose gradient tells of all
        self._version = 0  # of that gradient
        self._optimizer: torch.optim.Optimizer | None = None  # that will apply it

    def begin_with(self, pending_ids: list[int]) -> None:
        """The next update had used these samples already when the state was saved that a script goes on from."""
        self.batches = [Batch.earlier(pending_ids)] if pending_ids else []

    def taken(self) -> list[Batch]:
        """Returns them; an update was made of them, or would have been. From here on the next one's are collected."""
        self.num_summed, self._looked_at = 0, None
        taken, self.batches = self.batches, []
        return taken

    def ids(self) -> list[int]:
        """Their samples, as far as they are known."""
        return json.loads(self.encoded_ids(self.batches)) or [] if self.batches else []

    def encoded_ids(self, batches: list[Batch]) -> str:
        """The sample ids of several batches, or of none, as JSON."""
        if len(batches) == 1:
            return batches[0].ids or "null"
        lists = [batch.ids for batch in batches]
        if not self.has_loaders or None in lists:
            return "null"
        # No new batch (it was used before, say) is no gap in the record, if there are loaders at all.
        return f"[{', '.join([ids[1:-1] for ids in lists if ids and ids != '[]'])}]"

    def went_backward(self, optimizer: torch.optim.Optimizer | None) -> None:
        """The gradients of all of them are summed up now.

        Args:
            optimizer: the only one there is, which will apply them; None: there are others, or none is known yet. Of
                several each may make an update of what another one's parameters are zeroed for.
        """
        self.num_summed = len(self.batches)
        self._optimizer = optimizer
        # The one that had a gradient at the last backward pass of this update has one now, unless it was taken away.
        if optimizer is None or (looked_at := self._looked_at) is None or (gradient := looked_at.grad) is None:
            looked_at = self._looked_at = None if optimizer is None else _with_gradient(optimizer)
            gradient = None if looked_at is None else looked_at.grad
        if gradient is not None:
            self._version = gradient._version

    def has_forgotten(self) -> bool:
        """Forget what was summed up if its gradients are gone: the script threw them away, and made no update.

        Asked in front of each backward pass, which adds to what is there. Returns whether any were forgotten.
        """
        if not self.num_summed or self._optimizer is None or not self._is_zeroed(self._optimizer):
            return False
        del self.batches[: self.num_summed]
        self.num_summed = 0
        return True

    def _is_zeroed(self, optimizer: torch.optim.Optimizer) -> bool:
        if self._looked_at is None:
            return False
        gradient = self._looked_at.grad
        if gradient is None or gradient._version == self._version or gradient.device.type != "cpu":
            return gradient is None  # to look at the values on a GPU would make it wait
        # One that is zero may be so by itself, and the others tell: a unit that is dead, the first half of a LoRA.
        parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
        return not any(parameter.grad is not None and bool(parameter.grad.any()) for parameter in parameters)


def _with_gradient(optimizer: torch.optim.Optimizer) -> torch.nn.Parameter | None:
    """A parameter that has a gradient; None if none has."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                found: torch.nn.Parameter = parameter
                return found
    return None
