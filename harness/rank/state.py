"""What a script trains: the tensors of its models and optimizers, found without its help, and their digests."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from operator import is_, methodcaller
from typing import Any

import torch

from harness.rank.digest import Digests, digest_of, extended, magnitudes
from harness.rank.moments import Groups, Moments

_values = methodcaller("values")


class TrainingState:
    """The models and optimizers seen so far.

    Attributes:
        is_sharded: whether ranks hold parts of the state by design: FSDP2's tensors, the zero-redundancy optimizer.
    """

    def __init__(self) -> None:
        # Models weakly: a DDP object that outlives the script's last reference can hang the teardown. Their tensors
        # and the optimizers refer to no DDP object, so the end state can still be read when the model is gone.
        self._models: list[weakref.ref[torch.nn.Module]] = []
        self._modules: set[int] = set()  # identities
        self._optimizers: list[torch.optim.Optimizer] = []
        self._structure: _Structure | None = None  # of what was found last
        self._parameters, self._buffers, self._moments = _Tensors([]), _Tensors([]), Moments()
        self._digests = Digests()  # of these
        self.is_sharded = False

    def add_model(self, model: torch.nn.Module) -> None:
        for known in self._models:
            if known() is model:
                return
        self._models.append(weakref.ref(model))
        self._modules |= {id(module) for module in model.modules()}
        self._structure = None

    def holds(self, module: torch.nn.Module) -> bool:
        """Whether it is a model that was added, or a part of one."""
        return id(module) in self._modules

    def models(self) -> list[torch.nn.Module]:
        """Those that are still there."""
        return [model for known in self._models if (model := known()) is not None]

    @property
    def num_optimizers(self) -> int:
        return len(self._optimizers)

    def add_optimizer(self, optimizer: torch.optim.Optimizer, *, has_closure: bool = False) -> None:
        """It trains; ``has_closure`` says that it is given one, which tells it the losses of this rank."""
        if all(known is not optimizer for known in self._optimizers):
            self._optimizers.append(optimizer)
            if has_closure:
                self._moments.told_losses(optimizer)

    def digests(self) -> dict[str, str]:
        """Digests of all ``params``, ``optimizer`` states and ``buffers`` known so far."""
        groups = _groups(self._optimizers)
        is_new = self._look(groups)
        is_new |= self._moments.look(self._optimizers, groups)
        if is_new or (found := self._digests.again()) is None:
            lists = (self._parameters, self._moments, self._buffers)
            found = self._digests.of([(those.names, those.tensors) for those in lists])
        params, optimizer, buffers = found
        return {"params": params, "optimizer": extended(optimizer, self._moments.beside), "buffers": buffers}

    def named(self, part: str) -> Iterator[tuple[str, torch.Tensor]]:
        """Name and tensor of each ``parameter``, ``buffer``, or state that an ``optimizer`` keeps, nested or not."""
        self._look(_groups(self._optimizers))
        if part == "optimizer":
            found = chain.from_iterable(map(self._moments.leaves_of, self._optimizers))
            yield from ((leaf.name, leaf.value) for leaf in found if isinstance(leaf.value, torch.Tensor))
        else:
            those = self._parameters if part == "parameter" else self._buffers
            yield from zip(those.names, those.tensors, strict=True)

    def digest_of_buffers(self, others: Mapping[int, torch.Tensor]) -> str:
        """As if in place of each buffer stood what ``others`` has for its identity."""
        buffers = [others.get(id(buffer), buffer) for buffer in self._buffers.tensors]
        return digest_of(self._buffers.names, buffers)

    def magnitudes(self) -> list[tuple[str, int, float, float]]:
        """Of the parameters: see harness.rank.digest.magnitudes."""
        return magnitudes(self._parameters.names, self._parameters.tensors)

    def _look(self, groups: Groups) -> bool:
        """Find the tensors anew if there are others now; what was found last stays when a model is gone.

        Returns whether it did.
        """
        if self._structure is not None and self._structure.is_still(groups):
            return False
        models = self.models()
        if len(models) < len(self._models):
            return False
        self._structure = None  # first: it holds references, and the next one counts them
        self._structure = _Structure(models, groups)
        self._parameters = _Tensors(_parameters(models, self._optimizers))
        self._buffers = _Tensors(named for model in models for named in model.named_buffers())
        is_zero = any(type(optimizer).__name__ == "ZeroRedundancyOptimizer" for optimizer in self._optimizers)
        self.is_sharded = is_zero or any(hasattr(tensor, "to_local") for tensor in self._parameters.tensors)
        return True


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

    def __init__(self, models: list[Any], groups: Groups) -> None:
        modules = [module for model in models for module in model.modules()]
        # The modules' tables are held, for to reach them through the modules takes four times as long; that they are
        # still the modules' is seen from their reference counts. A table of submodules would keep these alive.
        self._tables = [table for m in modules for table in (m._parameters, m._buffers)]
        self._tables += [m._modules for m in modules if not m._modules]
        self._filled = [table for table in self._tables if table]
        self._parents = [weakref.ref(m) for m in modules if m._modules]
        below = self._below()
        self._counts = [*map(sys.getrefcount, self._tables)]
        self._sizes = [*map(len, chain(self._tables, below, groups))]
        self._held = [*self._names_and_tensors(below, groups)]
        self._submodules = [*_submodules(below)]

    def is_still(self, groups: Groups) -> bool:
        """Whether all is as it was."""
        below = self._below()
        return (
            [*map(sys.getrefcount, self._tables)] == self._counts
            and [*map(len, chain(self._tables, below, groups))] == self._sizes
            and all(map(is_, self._names_and_tensors(below, groups), self._held))
            and [*_submodules(below)] == self._submodules
        )

    def _below(self) -> list[dict[str, Any]]:
        """The tables of submodules."""
        return [parent._modules for reference in self._parents if (parent := reference()) is not None]

    def _names_and_tensors(self, below: list[dict[str, Any]], groups: Groups) -> Iterator[object]:
        return chain.from_iterable(chain(self._filled, map(_values, self._filled), below, groups))


def _groups(optimizers: list[torch.optim.Optimizer]) -> Groups:
    return [group["params"] for optimizer in optimizers for group in optimizer.param_groups]


def _submodules(below: list[dict[str, Any]]) -> Iterator[int]:
    """Their identities: they are not held, but of a module that lives on, its own tables are."""
    return map(id, chain.from_iterable(map(_values, below)))


def _parameters(models: list[Any], optimizers: list[torch.optim.Optimizer]) -> Iterator[tuple[str, torch.Tensor]]:
    """The models' parameters, then what the optimizers hold."""
    for model in models:
        yield from model.named_parameters()
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for index, parameter in enumerate(group["params"]):
                yield str(index), parameter
