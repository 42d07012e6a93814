"""What a script trains: the tensors of its models and optimizers, found without its help, and their digests."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter
from typing import Any

import torch

from harness.rank.digest import Digest, magnitudes, optimizer_tensors

_tables = attrgetter("_parameters", "_buffers", "_modules")


class TrainingState:
    """The models and optimizers seen so far.

    Attributes:
        is_sharded: whether ranks hold parts of the state by design: FSDP2's tensors, the zero-redundancy optimizer.
    """

    def __init__(self) -> None:
        # Models weakly: a DDP object that outlives the script's last reference can hang the teardown. Their tensors
        # and the optimizers refer to no DDP object, so the end state can still be read when the model is gone.
        self._models: list[weakref.ref[torch.nn.Module]] = []
        self._optimizers: list[torch.optim.Optimizer] = []
        self._structure = _Structure([], [])
        self._parameters, self._buffers = _Tensors([]), _Tensors([])
        self._of_parameters, self._of_optimizers, self._of_buffers = Digest(), Digest(), Digest()
        self._has_looked = False
        self.is_sharded = False

    def add_model(self, model: torch.nn.Module) -> None:
        if all(known() is not model for known in self._models):
            self._models.append(weakref.ref(model))

    def add_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        if all(known is not optimizer for known in self._optimizers):
            self._optimizers.append(optimizer)
            self._has_looked = False

    def look(self) -> None:
        """Find the tensors anew if there are others now; what was found last stays when a model is gone.

        A good moment is when a forward pass begins: it touches the same modules, so that this costs next to nothing.
        """
        self._has_looked = True
        models = [module for model in self._models if (module := model()) is not None]
        if len(models) < len(self._models) or self._structure.is_still(len(models), self._optimizers):
            return
        self._structure = _Structure(models, self._optimizers)
        self._parameters = _Tensors(_parameters(models, self._optimizers))
        self._buffers = _Tensors(named for model in models for named in model.named_buffers())
        is_zero = any(type(optimizer).__name__ == "ZeroRedundancyOptimizer" for optimizer in self._optimizers)
        self.is_sharded = is_zero or any(hasattr(tensor, "to_local") for tensor in self._parameters.tensors)

    def digests(self) -> dict[str, str]:
        """Digests of all ``params``, ``optimizer`` states and ``buffers``; looks first if not done since the last."""
        if not self._has_looked:
            self.look()
        self._has_looked = False
        return {
            "params": self._of_parameters.of(self._parameters.names, self._parameters.tensors),
            "optimizer": self._of_optimizers.of(*optimizer_tensors(self._optimizers)),
            "buffers": self._of_buffers.of(self._buffers.names, self._buffers.tensors),
        }

    def magnitudes(self) -> list[tuple[str, int, float, float]]:
        """Of the parameters: see harness.rank.digest.magnitudes."""
        return magnitudes(self._parameters.names, self._parameters.tensors)


class _Tensors:
    """Each tensor under its first name, without DDP's ``module.``: a wrapped and an unwrapped model compare equal."""

    def __init__(self, named: Iterable[tuple[str, torch.Tensor]]) -> None:
        self.names: list[str] = []
        self.tensors: list[torch.Tensor] = []
        seen: set[int] = set()
        for name, tensor in named:
            if id(tensor) not in seen:
                seen.add(id(tensor))
                self.names.append(name.removeprefix("module."))
                self.tensors.append(tensor)


class _Structure:
    """Of which modules and tensors, under which names, models and optimizers consist.

    To compare it with what they are now takes a fraction of the time of ``named_parameters()``, and sees all that this
    would see: parameters and modules that were added, removed, renamed or replaced.
    """

    def __init__(self, models: list[Any], optimizers: list[torch.optim.Optimizer]) -> None:
        modules = [module for model in models for module in model.modules()]
        self._num_models = len(models)
        self._modules = [weakref.ref(module) for module in modules]
        # An identity is one for as long as its object lives: names and tensors are held for that, modules looked at.
        members = _members(modules, optimizers)
        self._members = [*map(id, members)]
        self._held = [member for member in members if not isinstance(member, torch.nn.Module)]

    def is_still(self, num_models: int, optimizers: list[torch.optim.Optimizer]) -> bool:
        """Whether all is as it was."""
        modules = [*map(weakref.ref.__call__, self._modules)]
        if num_models != self._num_models or None in modules:
            return False
        return [*map(id, _members(modules, optimizers))] == self._members


def _members(modules: list[Any], optimizers: list[torch.optim.Optimizer]) -> list[object]:
    """How many parameters, buffers and submodules each module has, all their names, and themselves."""
    tables = [*chain.from_iterable(map(_tables, modules))]
    members: list[object] = [*map(len, tables)]
    for table in filter(None, tables):
        members += table.keys()
        members += table.values()
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            members += group["params"]
    return members


def _parameters(models: list[Any], optimizers: list[torch.optim.Optimizer]) -> Iterator[tuple[str, torch.Tensor]]:
    """The models' parameters, then what the optimizers hold."""
    for model in models:
        yield from model.named_parameters()
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for index, parameter in enumerate(group["params"]):
                yield str(index), parameter
