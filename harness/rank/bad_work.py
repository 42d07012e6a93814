"""A backward, an update, a save or a load that a fault leaves out or does otherwise.

Each place is wrapped only in a process that has such a fault to come.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler
from torch.optim.optimizer import Optimizer

from harness.faults.work import Gradient, Part, WorkFault
from harness.rank import bits
from harness.rank.steps import Steps
from harness.rank.triggers import Fired, Triggers


def install(triggers: Triggers, steps: Steps) -> None:
    """Let the planned faults act. Before ``steps.install()``: a phase is entered first, then the fault acts in it."""
    places = {fault.acts_in for fault in triggers.waiting(WorkFault)}
    if "backward" in places:
        _wrap_backward(triggers, steps)
    if "unscale" in places:
        _wrap_scaler(triggers, steps)
    if "optimizer_step" in places:
        _wrap_optimizers(triggers, steps)
    if places & {"save", "load"}:
        _wrap_store(triggers, steps)


def _wrap_backward(triggers: Triggers, steps: Steps) -> None:
    backward = torch.autograd.backward

    @functools.wraps(backward)
    def faulty(*args: Any, **kwargs: Any) -> Any:
        do = functools.partial(backward, *args, **kwargs)
        if (fired := triggers.at_work("backward")) is None:
            return do()
        roots = args[0] if args else kwargs["tensors"]
        roots = [roots] if isinstance(roots, torch.Tensor) else list(roots)
        return fired.fault.replace(_Work(do, fired, steps, roots=roots))

    torch.autograd.backward = faulty


def _wrap_scaler(triggers: Triggers, steps: Steps) -> None:
    scalers: Any = GradScaler  # Any: a method is replaced
    unscale = scalers.unscale_

    @functools.wraps(unscale)
    def faulty(scaler: Any, optimizer: Any) -> Any:
        do = functools.partial(unscale, scaler, optimizer)
        if sys._getframe(1).f_globals["__name__"] == GradScaler.__module__:  # its step(), where the script has not
            return do()
        fired = triggers.at_work("unscale")
        return do() if fired is None else fired.fault.replace(_Work(do, fired, steps))

    scalers.unscale_ = faulty


def _wrap_optimizers(triggers: Triggers, steps: Steps) -> None:
    """Inside of each class's hooks, so that they run as ever: torch puts them around ``step`` at the first instance."""
    optimizers: Any = Optimizer  # Any: a method is replaced
    hook = optimizers.profile_hook_step

    def faulty_hook(make_step: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make_step)
        def faulty(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            do = functools.partial(make_step, optimizer, *args, **kwargs)
            if not steps.is_updating(optimizer) or (fired := triggers.at_work("optimizer_step")) is None:
                return do()
            return fired.fault.replace(_Work(do, fired, steps, optimizer=optimizer))

        hooked: Callable[..., Any] = hook(faulty)
        return hooked

    optimizers.profile_hook_step = staticmethod(faulty_hook)


def _wrap_store(triggers: Triggers, steps: Steps) -> None:
    from harness.checkpoint import store

    stores: Any = store.CheckpointStore  # Any: methods are replaced
    save, async_save, load = stores.save, stores.async_save, stores.load

    def saved(self: Any, step: int) -> store.Saved:
        return store.Saved(step=step, path=Path(self.root) / f"step-{step}", manifest_sha256="")

    @functools.wraps(save)
    def faulty_save(self: Any, step: int, *args: Any, **kwargs: Any) -> Any:
        do = functools.partial(save, self, step, *args, **kwargs)
        return in_place(do, lambda: saved(self, step), "save")

    @functools.wraps(async_save)
    def faulty_async_save(self: Any, step: int, *args: Any, **kwargs: Any) -> Any:
        do = functools.partial(async_save, self, step, *args, **kwargs)
        return in_place(do, lambda: store.PendingSave(step, lambda: saved(self, step)), "save")

    @functools.wraps(load)
    def faulty_load(self: Any, *args: Any, **kwargs: Any) -> Any:
        return in_place(functools.partial(load, self, *args, **kwargs), lambda: None, "load")

    def in_place(do: Callable[[], Any], instead: Callable[[], Any], phase: Any) -> Any:
        steps.enter(phase)
        fired = triggers.at_work(phase)
        return do() if fired is None else fired.fault.replace(_Work(do, fired, steps, instead=instead))

    stores.save, stores.async_save, stores.load = faulty_save, faulty_async_save, faulty_load


class _Work:
    """See harness.faults.work.Work.

    Args:
        do: the work itself.
        instead: makes what the script gets where it is left out.
        roots: what a backward begins with.
        optimizer: whose update it is.
    """

    def __init__(
        self,
        do: Callable[[], Any],
        fired: Fired[WorkFault],
        steps: Steps,
        *,
        instead: Callable[[], Any] = lambda: None,
        roots: list[torch.Tensor] | None = None,
        optimizer: Optimizer | None = None,
    ) -> None:
        self.do = do
        self._fired, self._steps, self._instead = fired, steps, instead
        self._roots, self._optimizer = roots or [], optimizer

    def leave_out(self) -> Any:
        self._fired.tell(params=self._steps.state.digests()["params"])
        return self._instead()

    def do_at_lr(self, factor: float) -> Any:
        assert self._optimizer is not None, "an update has an optimizer"
        with _scaled_lr(self._optimizer, factor) as (usual, scaled):
            self._fired.tell(usual=usual, lr=scaled)
            self._steps.note_lr(scaled)
            return self.do()

    def do_with_overflow(self, gradient: Gradient) -> Any:
        if gradient == "local":
            for root in self._roots:
                root.register_hook(lambda grad: grad * torch.inf)
        result = self.do()
        gradients = [p.grad for _, p in self._steps.state.named("parameter") if p.grad is not None]
        if gradient == "reduced":
            gradients = [grad for grad in gradients if grad.isfinite().all()]  # others have overflowed by themselves
            for grad in gradients:
                grad.detach().fill_(torch.inf)
        self._fired.tell(gradients=sum(not bool(grad.isfinite().all()) for grad in gradients))
        return result

    def flip_bit(self, part: Part, name: str | None, index: int, bit: int) -> None:
        if (found := self._find(part, name)) is None:
            return
        label, tensor = found
        try:
            measured = bits.flip(label, tensor, index, bit)
        except Exception as error:  # of a kind whose elements cannot be set, such as a nested or a sparse one
            measured = {"problem": f"no bit of {label} can be flipped: {type(error).__name__}: {error}"}
        self._fired.tell(**measured)

    def add_to_buffer(self, name: str | None, amount: float) -> None:
        if (found := self._find("buffer", name)) is not None:
            label, buffer = found
            before = buffer.clone()
            buffer.add_(amount)
            self._fired.tell(tensor=label, elements=int((buffer != before).sum()))

    def _find(self, part: str, name: str | None) -> tuple[str, torch.Tensor] | None:
        """What to call it, and this rank's part of the tensor meant; None, and a word about it, if there is none."""
        named = list(self._steps.state.named(part))
        if part == "buffer":
            named = [(known, tensor) for known, tensor in named if tensor.is_floating_point()]
        for known, tensor in named:
            if name in (None, known):
                local = (tensor.to_local() if hasattr(tensor, "to_local") else tensor).detach()
                return f"{part} {known}", torch.view_as_real(local) if local.is_complex() else local
        what = "floating-point buffer" if part == "buffer" else f"{part} tensor"
        there = ", ".join(dict.fromkeys(known for known, _ in named)) or "none"
        self._fired.tell(problem=f"there is no {what}{f' named {name!r}' if name else ''}; there are: {there}")
        return None


@contextmanager
def _scaled_lr(optimizer: Optimizer, factor: float) -> Iterator[tuple[list[float], list[float]]]:
    usual = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * factor  # not in place: it may be a tensor that others hold
    try:
        yield [float(lr) for lr in usual], [float(group["lr"]) for group in optimizer.param_groups]
    finally:
        for group, lr in zip(optimizer.param_groups, usual, strict=True):
            group["lr"] = lr
