"""The gradients of a few updates, beside those that the same batches have in float64.

In front of such an update each rank takes the gradients that its optimizer is about to apply, and those of every batch
that it used: of a copy of the model in float64, from the same state, drawing the same random numbers. They are linear
in the batches, so that their sums over all ranks can be compared later, from the records alone. What goes on record of
a gradient is a sketch: the products of each parameter's part with a few random vectors. A sketch is linear as well, and
of about the same norm, and two gradients that differ have different sketches.
"""

from __future__ import annotations

import copy
import inspect
import random
import runpy
import sys
import threading
import traceback
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from harness.rank.batches import EARLIER, Batch, rebuilt
from harness.rank.recorder import Recorder
from harness.wire import Kind

NUM_VECTORS = 4  # a parameter
MAX_KEPT_NUMEL = 1_000_000  # of a parameter whose vectors are kept from one update to the next
FIRST_UPDATES = 2  # of each launch, where the scenario names no steps


@dataclass(frozen=True, slots=True)
class _RandomState:
    """Of the generators that a model may draw from."""

    cpu: torch.Tensor
    cuda: torch.Tensor | None
    python: Any
    numpy: Any

    @classmethod
    def now(cls) -> _RandomState:
        numpy = sys.modules.get("numpy")
        return cls(
            torch.get_rng_state(),
            torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None,
            random.getstate(),
            None if numpy is None else numpy.random.get_state(),
        )

    def set(self) -> None:
        torch.set_rng_state(self.cpu)
        if self.cuda is not None:
            torch.cuda.set_rng_state(self.cuda)
        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)

    def is_now_on_device(self) -> bool:
        """Whether torch would draw the same numbers now."""
        is_same_cuda = self.cuda is None or self.cuda.equal(torch.cuda.get_rng_state())
        return self.cpu.equal(torch.get_rng_state()) and is_same_cuda


class _Calls:
    """Counts the calls of a model, as a hook of it; a copy of the model is not counted here."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self, *_: Any) -> None:
        self.number += 1

    def __deepcopy__(self, _: Any) -> _Calls:
        return _Calls()


@dataclass(slots=True)
class _Kept:
    """A batch that was handed out, and the random state in which the model was called with it."""

    batch: Batch
    content: Any
    random_states: list[_RandomState] = field(default_factory=list)  # of each call


class Gradients:
    """Records some updates' gradients.

    Args:
        losses_file: Python file with ``losses(model, batch)``: for each head the sum of its losses over its targets,
            their number, and a weight (1 if left out). ``model`` is the script's own, without DDP. A batch without
            targets of a head has no part in that one's gradient.
        steps: those to be recorded; empty: the first two of each launch.
    """

    def __init__(self, recorder: Recorder, losses_file: str, steps: tuple[int, ...]) -> None:
        self._recorder = recorder
        self._steps = frozenset(steps)
        self._kept: dict[int, _Kept] = {}  # by the batch's identity
        self._vectors: dict[tuple[str, int, torch.device], torch.Tensor] = {}
        self._num_recorded = 0
        self._is_done = False  # no later update is to be recorded
        self._error: str | None = None
        self._calls = _Calls()  # of the script's model, for the update that is being made
        self._counted: set[int] = set()  # identities of models whose calls are counted
        self._in_float64: Callable[[], AbstractContextManager[object]] = _float64_by_name  # losses() is called so
        self._file = losses_file
        sys.path.insert(0, str(Path(losses_file).parent))  # as for a script: it may import what lies beside it
        try:
            self._losses: Any = runpy.run_path(losses_file).get("losses")
            if not callable(self._losses):
                self._error = f"{losses_file} has no function losses(model, batch)"
        except BaseException as error:  # the user's file: it may also call sys.exit
            self._error = self._said(error)
        finally:
            sys.path.remove(str(Path(losses_file).parent))

    def handed_out(self, batch: Batch, content: Any) -> None:
        if not self._is_done:
            try:
                self._kept[id(batch)] = _Kept(batch, copy.deepcopy(content))  # scripts may change theirs in place
            except Exception as error:  # of any kind: training goes on
                self._error = f"a batch cannot be copied: {type(error).__name__}: {error}"

    def called_with(self, model: torch.nn.Module, batches: list[Batch]) -> None:
        """The model is about to be called with these."""
        if id(model) not in self._counted:
            self._counted.add(id(model))
            self._calls.number += 1  # the one that is beginning meets no new hook
            model.register_forward_pre_hook(self._calls)
        for batch in batches:
            if (kept := self._kept.get(id(batch))) is not None:
                kept.random_states.append(_RandomState.now())

    def skipped(self) -> None:
        """What the model was called with brought no update."""
        self._calls.number = 0

    def zeroed(self) -> None:
        """All calls but the one that goes backward now were in vain."""
        self._calls.number = min(self._calls.number, 1)

    def _said(self, error: BaseException) -> str:
        """The error, and the line of the user's file that it came from."""
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == self._file]
        return f"{self._file}{f':{lines[-1]}' if lines else ''}: {type(error).__name__}: {error}"

    def before_update(
        self,
        step: int,
        models: list[torch.nn.Module],
        used: list[Batch],
        optimizer: torch.optim.Optimizer,
        *,
        has_closure: bool = False,
    ) -> None:
        """Record the gradients of update ``step`` if it is one of those; forget the batches before it.

        Args:
            has_closure: the optimizer's step is given a function that computes them.
        """
        num_calls, self._calls.number = self._calls.number, 0
        kept = [self._kept.get(id(batch)) for batch in used]
        handed_out = [*self._kept]
        last = max((handed_out.index(id(batch)) for batch in used if id(batch) in self._kept), default=-1)
        for identity in handed_out[: last + 1]:  # those before were evaluated or passed over
            del self._kept[identity]
        if self._is_done or (self._steps and step not in self._steps):
            return
        if any(batch.loader == EARLIER for batch in used):
            return  # an earlier launch had begun it, with batches that are gone
        self._num_recorded += 1
        self._is_done = step >= max(self._steps) if self._steps else self._num_recorded == FIRST_UPDATES
        try:
            if self._error is not None:
                raise _CannotError(self._error)
            if has_closure:
                raise _CannotError("the optimizer computes them within its step, by the closure that it is given")
            if (own := _own_step(optimizer)) is not None:
                raise _CannotError(
                    f"{own}.step() calls that of its base class: what it does with the gradients is not seen"
                )
            if len(models) != 1:
                raise _CannotError(f"{len(models)} models are trained; one is allowed")
            if not kept or None in kept:
                raise _CannotError("not all batches of the update came from a DataLoader")
            recorded = self._of_update(_unwrapped(models[0]), [one for one in kept if one is not None], num_calls)
            if (scale := getattr(optimizer, "grad_scale", None)) is not None:  # a fused one unscales within its step
                recorded["applied"] = [[x / float(scale) for x in part] for part in recorded["applied"]]
                recorded["norm"] /= float(scale)
        except Exception as error:  # what the user's losses() raises as well: training goes on
            recorded = {"error": str(error) if isinstance(error, _CannotError) else self._said(error)}
        self._recorder.emit(Kind.GRADIENT, **recorded)

    def _of_update(self, model: torch.nn.Module, kept: list[_Kept], num_calls: int) -> dict[str, Any]:
        """Of one update, as it goes on record: see Kind.GRADIENT."""
        if self._in_float64 is _float64_by_name:
            try:
                return self._beside_float64(model, kept, num_calls)
            except RuntimeError:  # of float32 beside float64, perhaps, that a function made which is called otherwise
                self._in_float64 = _Float64
        return self._beside_float64(model, kept, num_calls)

    def _beside_float64(self, model: torch.nn.Module, kept: list[_Kept], num_calls: int) -> dict[str, Any]:
        parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if any(hasattr(p, "to_local") for p in parameters.values()):
            raise _CannotError("the model is sharded")
        applied = [None if p.grad is None else _dense(p.grad.detach()).double() for p in parameters.values()]
        norm = sum(float(g.square().sum()) for g in applied if g is not None) ** 0.5
        with _without_a_trace():
            twin = _copied(model).double()
            of_twin = {name: p for name, p in twin.named_parameters() if p.requires_grad}
            calls = _Calls()
            twin.register_forward_pre_hook(calls)
            parts = [self._of_batch(twin, of_twin, one) for one in kept]
        if calls.number != num_calls:
            said = f"the script calls its model {num_calls} times in the update, losses() {calls.number} times"
            raise _CannotError(f"{said}; it must do what the script does")
        return {
            "device": next(iter(parameters.values())).device.type,
            "names": [*parameters],
            "numel": sum(p.numel() for p in parameters.values()),
            "applied": self._sketch(parameters, applied),
            "norm": norm,
            "parts": parts,
        }

    def _of_batch(self, twin: torch.nn.Module, parameters: Mapping[str, torch.Tensor], kept: _Kept) -> dict[str, Any]:
        """Of one batch, as it goes on record: see Kind.GRADIENT."""
        if len(kept.random_states) != 1:
            raise _CannotError(f"the model was called {len(kept.random_states)} times with a batch; once is allowed")
        before = kept.random_states[0]
        before.set()
        device = next(iter(parameters.values())).device

        def to_double(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(device, torch.float64 if tensor.is_floating_point() else tensor.dtype, copy=True)

        heads = {}
        with torch.enable_grad():
            content = rebuilt(kept.content, to_double)
            with self._in_float64():  # not around more: torch's functions are slower meanwhile
                found = self._losses(twin, content)
            has_drawn = not before.is_now_on_device()
            losses = [_loss(name, given) for name, given in found.items()]
            for number, (name, total, count, weight) in enumerate(losses, start=1):
                gradients: Any = (None,) * len(parameters)
                if total.requires_grad and count:  # else no parameter has a part in it
                    gradients = torch.autograd.grad(
                        total, [*parameters.values()], retain_graph=number < len(losses), allow_unused=True
                    )
                heads[name] = {
                    "count": count,
                    "weight": weight,
                    "sum": self._sketch(parameters, gradients),
                }
        return {"samples": kept.batch.num_samples, "has_drawn": has_drawn, "heads": heads}

    def _sketch(self, parameters: Mapping[str, torch.Tensor], gradients: Any) -> list[list[float]]:
        """(number of parameters, NUM_VECTORS)."""
        products: list[torch.Tensor] = []
        for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True):
            if gradient is None:
                products.append(torch.zeros(NUM_VECTORS, dtype=torch.float64, device=parameter.device))
            else:
                vectors = self._vectors_of(name, parameter.numel(), gradient.device)
                products.append(vectors @ _dense(gradient).flatten())
        if not products:
            return []
        # All in one transfer, for which a GPU has to be waited for; a model may lie on several.
        found: list[list[float]] = torch.stack([one.to(products[0].device) for one in products]).tolist()
        return found

    def _vectors_of(self, name: str, numel: int, device: torch.device) -> torch.Tensor:
        """(NUM_VECTORS, numel), float64, the same on all ranks."""
        if (vectors := self._vectors.get((name, numel, device))) is None:
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            # In float32, for that is drawn several times faster, and any numbers do.
            vectors = torch.randn(NUM_VECTORS, numel, generator=generator, dtype=torch.float32).to(device).double()
            if numel <= MAX_KEPT_NUMEL:
                self._vectors[name, numel, device] = vectors
        return vectors


def _loss(head: str, given: Any) -> tuple[str, torch.Tensor, float, float]:
    if isinstance(given, tuple) and len(given) in (2, 3) and isinstance(given[0], torch.Tensor):
        total, count, weight = (*given, 1.0)[:3]
        value = float(total.detach())
        if value != 0 and not (float(count) > 0 and total.requires_grad):
            what = "no gradient: is it detached?" if float(count) > 0 else f"the count {float(count):g}"
            raise _CannotError(f"losses() gave for {head!r} a sum of {value:.4g} with {what}")
        return head, total, float(count), float(weight)
    raise _CannotError(f"losses() gave {given!r} for {head!r}; wanted is (sum, count) or (sum, count, weight)")


class _CannotError(Exception):
    """Why the gradients of an update cannot be told."""


def _dense(gradient: torch.Tensor) -> torch.Tensor:
    """That of an embedding may be sparse."""
    return gradient if gradient.layout is torch.strided else gradient.to_dense()


def _own_step(optimizer: torch.optim.Optimizer) -> str | None:
    """The class of a ``step`` that stands in front of another optimizer's; None if there is but one."""
    classes = [c for c in type(optimizer).__mro__ if c is not torch.optim.Optimizer and "step" in vars(c)]
    # torch wraps the step of each class that an optimizer is made of, an inherited one too: AdamW's is Adam's.
    steps = {inspect.unwrap(vars(c)["step"]) for c in classes}
    return classes[0].__name__ if len(steps) > 1 else None


def _unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    inner = model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model
    assert isinstance(inner, torch.nn.Module)
    return inner


def _copied(model: torch.nn.Module) -> torch.nn.Module:
    """A deep copy. Most of a module's tables are empty, and to copy these here takes a fraction of the time."""
    tables = (v for module in model.modules() for v in vars(module).values() if type(v) in _TABLES and not v)
    return copy.deepcopy(model, {id(table): type(table)() for table in tables})


_TABLES = (dict, OrderedDict, set)


def _doubled(make: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> torch.Tensor:
    made = make(*args, **kwargs)
    is_float = kwargs.get("dtype") is None and made.dtype == torch.get_default_dtype()
    return made.double() if is_float else made


class _Float64(TorchFunctionMode):
    """New floating-point tensors of this thread are float64: masks that a model makes, random numbers that it draws."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _STOCK:
            return _doubled(func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


@contextmanager
def _float64_by_name() -> Iterator[None]:
    """The same where they are made by ``torch.zeros`` and its like: in a third less time than under the mode.

    A function that was imported by its own name stays as it is.
    """
    mine = threading.get_ident()
    found = {name: getattr(torch, name) for name in _FACTORIES}  # the script may have put in its own

    def of_this_thread(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def made(*args: Any, **kwargs: Any) -> torch.Tensor:
            return _doubled(make, *args, **kwargs) if threading.get_ident() == mine else make(*args, **kwargs)

        return made

    for name, make in found.items():
        setattr(torch, name, of_this_thread(make))
    try:
        yield
    finally:
        for name, make in found.items():
            setattr(torch, name, make)


_FACTORIES = ("zeros", "ones", "full", "empty", "eye", "linspace", "rand", "randn")
_STOCK = {getattr(torch, name) for name in _FACTORIES}


@contextmanager
def _without_a_trace() -> Iterator[None]:
    """Autocast is off, and no random number is drawn that the script would have drawn."""
    state = _RandomState.now()
    autocast = [(kind, torch.is_autocast_enabled(kind)) for kind in ("cpu", "cuda")]
    for kind, _ in autocast:
        torch.set_autocast_enabled(kind, False)
    try:
        yield
    finally:
        state.set()
        for kind, was_enabled in autocast:
            torch.set_autocast_enabled(kind, was_enabled)
