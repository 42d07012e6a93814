"""Global step, phases, and a digest of everything that matters after each update, without a word in the script.

Phases are seen through torch's global module and optimizer hooks and through ``torch.autograd.backward``. An update is
one step of the first optimizer that ever stepped; others (a discriminator's, say) are digested along with it.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from harness.rank import collectives
from harness.rank.batches import Batch, WaitingBatches
from harness.rank.callers import is_probing, is_within_step
from harness.rank.generators import rng_digests
from harness.rank.gradients import Gradients
from harness.rank.recorder import Recorder, encode
from harness.rank.scalers import Scalers
from harness.rank.state import TrainingState
from harness.rank.used import UsedBatches
from harness.wire import Kind, Phase

_UPDATING: frozenset[Phase] = frozenset({"load_batch", "forward", "backward", "optimizer_step"})


class Steps:
    """Where the training script is, and what its state is.

    Args:
        resolve_step: digests of the parameters before the first update, and of the optimizer's state if that is known
            -> the step they are the state after, as far as the records of earlier restarts tell, else None.
        gradients: records those of some updates; None: of none.

    Attributes:
        updates: updates done, in the job's count: a resumed script starts at its checkpoint's step.
        state: what is trained.
        waiting: batches that were handed out and not trained on yet.
        is_unseen: what runs now is no part of the script, and leaves no record.
        is_reading: a DataLoader makes a batch.
        is_torn_down: ``destroy_process_group`` has come back.
    """

    def __init__(
        self,
        recorder: Recorder,
        resolve_step: Callable[[str, str | None], int | None],
        gradients: Gradients | None = None,
    ) -> None:
        self._recorder = recorder
        self._gradients = gradients
        self._resolve_step = resolve_step
        self.updates = 0
        self._claimed_step: int | None = None
        self._matched_step: int | None = None
        self.state = TrainingState()
        self._scalers = Scalers()
        self._main_optimizer: torch.optim.Optimizer | None = None  # the first that stepped
        self._forward_hooks: Any = {}
        self._forward_hook_id = 0
        self._is_probing_optimizer = False
        self._is_in_backward = False
        self._is_stepping, self._num_inner_steps = False, 0  # of the main optimizer; a step that raised leaves it True
        self.is_reading = False
        self._has_begun = False  # the first forward pass
        self._untouched: dict[int, torch.Tensor] = {}  # id of a buffer -> a copy of it from before that
        # A forward pass in evaluation mode with gradients: the model, and what it was called with.
        self._looked_at: tuple[weakref.ref[torch.nn.Module], Any] | None = None
        self._lr: list[float] = []
        self._encoded_lr = "[]"
        self.waiting = WaitingBatches()
        self._evaluated: tuple[int, weakref.ref[torch.nn.Module]] | None = None  # loader and model, as seen last
        self.is_unseen = False
        self.is_torn_down = False
        self._used = UsedBatches()
        self._trained_loader: int | None = None  # which gave the last update its batches
        self._evaluated_loader: int | None = None  # which gave the last evaluation its batches

    # -- where the script is -------------------------------------------------------------------------------------

    def enter(self, phase: Phase) -> None:
        # Every module's call is hooked, but within a forward pass none, once the models are known. Submodules, some of
        # them in evaluation mode, change no phase, and torch takes a slow path for all while there is any global hook.
        if phase == "forward" and self._main_optimizer is not None:
            self._forward_hooks.pop(self._forward_hook_id, None)
        else:
            self._forward_hooks[self._forward_hook_id] = self._before_forward
        self._recorder.enter(phase, self.updates + (phase in _UPDATING))

    def enter_between(self) -> None:
        """Back to the end of the update that was made last, after another optimizer's part of it."""
        self._forward_hooks[self._forward_hook_id] = self._before_forward
        self._recorder.enter("optimizer_step", self.updates)

    def batch_loaded(self, batch: Batch, content: Any) -> None:
        """A DataLoader handed out ``content``."""
        self._used.has_loaders = True
        self.waiting.append(batch)
        if self._gradients is not None:
            self._gradients.handed_out(batch, content)

    def is_updating(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether the step that this optimizer makes now is an update."""
        return optimizer is self._main_optimizer and not self._is_probing_optimizer

    def note_lr(self, lr: list[float]) -> None:
        """The update that is being made has other learning rates than its optimizer began it with."""
        self._lr, self._encoded_lr = lr, encode(lr)

    def loader_ended(self, loader: int) -> None:
        """It has no more batches. After an evaluation the script adds up what it has counted: that belongs to it."""
        if loader == self._evaluated_loader:
            self._evaluated_loader = None
            self.enter("eval")

    def resumed(self, step: int, pending_ids: list[int]) -> None:
        """The checkpoint store says that it gave the script the state after ``step``.

        Args:
            pending_ids: samples that the next update had used already when that was saved.
        """
        self._claimed_step = self.updates = step
        self._used.begin_with(pending_ids)

    def pending_ids(self) -> list[int]:
        """Samples used since the last update: of micro-batches, where an update takes several."""
        return self._used.ids()

    def model_evaluated_on(self, loader: int) -> torch.nn.Module | None:
        """The model that was called last for evaluation, if that was with a batch of ``loader``; asked once."""
        (read, model), self._evaluated = self._evaluated or (None, None), None
        return model() if model is not None and read == loader else None

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """What runs meanwhile is no part of the script: no phase, no model and no loader of it is seen."""
        hook = self._forward_hooks.pop(self._forward_hook_id, None)
        self.is_unseen = True
        try:
            yield
        finally:
            self.is_unseen = False
            if hook is not None:
                self._forward_hooks[self._forward_hook_id] = hook

    def record_evaluated(self, kind: Kind, **fields: Any) -> None:
        """Record an event of the evaluation that has just come to its end, in its step and phase."""
        step, phase = self._recorder.step, self._recorder.phase
        self._recorder.step, self._recorder.phase = self.updates, "eval"
        self._recorder.emit(kind, **fields)
        self._recorder.step, self._recorder.phase = step, phase

    # -- hooks ---------------------------------------------------------------------------------------------------

    def install(self) -> None:
        handle = register_module_forward_pre_hook(self._before_forward)
        self._forward_hooks, self._forward_hook_id = handle.hooks_dict_ref(), handle.id
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)
        self._wrap_backward()
        self._wrap_teardown()
        self._scalers.install(self._skipped)

    def _before_forward(self, module: torch.nn.Module, inputs: Any) -> None:
        if self._is_in_backward or self.is_reading:
            return  # activation checkpointing calls a part of the model again; a data set may transform its samples
        is_training = module.training and torch.is_grad_enabled()
        if is_training and self._main_optimizer is None:
            self._see(module)
        if self._recorder.phase == "forward" or (self._recorder.phase == "eval" and not is_training):
            return
        if is_training and self._recorder.phase == "eval" and not module._parameters and not module._modules:
            return  # a criterion, say, which nobody has told that this is an evaluation
        if not is_training:
            self._looked_at = None
            if (loader := self.waiting.evaluated()) is not None:  # else the same batch again, by another model
                self._evaluated_loader = None if loader == self._trained_loader else loader
                self._evaluated = (loader, weakref.ref(module))
            if torch.is_grad_enabled():
                self._looked_at = (weakref.ref(module), inputs)
            self.enter("eval")
            return
        self._train_on(module, inputs)

    def _train_on(self, module: torch.nn.Module, inputs: Any) -> None:
        """A forward pass of ``module`` with ``inputs`` is part of the update that is being made."""
        self._looked_at = None
        used = self.waiting.trained_on(inputs, is_first=self._main_optimizer is None and not self._used.batches)
        self._used.batches += used
        if self._gradients is not None:
            self._gradients.called_with(module, used)
        self.state.add_model(module)
        if not self._has_begun:
            self._has_begun = True
            self._match_step(self.state.digests()["params"])
        self.enter("forward")

    def _train_after_all(self, looked_at: tuple[weakref.ref[torch.nn.Module], Any]) -> None:
        """A model in evaluation mode was called with gradients, and they are computed: it is trained that way."""
        reference, inputs = looked_at
        if (module := reference()) is not None:
            self._evaluated = self._evaluated_loader = None
            self.waiting.not_evaluated()
            self._train_on(module, inputs)

    def _see(self, module: torch.nn.Module) -> None:
        """In the first update: a script may call several models in one pass, one after the other."""
        if not self.state.holds(module) and any(True for _ in (*module.parameters(), *module.buffers())):
            self.state.add_model(module)
            self._untouched |= {id(buffer): buffer.detach().clone() for buffer in module.buffers()}

    def _wrap_backward(self) -> None:
        backward = torch.autograd.backward

        @functools.wraps(backward)
        def seen(*args: Any, **kwargs: Any) -> Any:
            if self._looked_at is not None:
                self._train_after_all(self._looked_at)
            if self._used.num_summed and self._used.has_forgotten() and self._gradients is not None:
                self._gradients.zeroed()
            self.enter("backward")
            if self._is_in_backward:  # activation checkpointing, say, within another
                return backward(*args, **kwargs)
            self._is_in_backward, collectives.reducing = True, []
            try:
                result = backward(*args, **kwargs)
            finally:
                self._is_in_backward = False
            self._used.went_backward(self._main_optimizer if self.state.num_optimizers == 1 else None)
            collectives.reducing = None  # after an exception they tell whether it came out of communication
            return result

        torch.autograd.backward = seen

    def _wrap_teardown(self) -> None:
        destroy = dist.destroy_process_group

        @functools.wraps(destroy)
        def seen(*args: Any, **kwargs: Any) -> Any:
            self.enter("teardown")
            result = destroy(*args, **kwargs)
            self.is_torn_down = True
            return result

        dist.destroy_process_group = dist.distributed_c10d.destroy_process_group = seen

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._is_probing_optimizer = is_probing()
        if self._is_probing_optimizer:
            return
        if optimizer is not self._main_optimizer:
            self.state.add_optimizer(optimizer, has_closure=_has_closure(args, kwargs))
            if self._main_optimizer is not None:
                return
            self._main_optimizer = optimizer
            self._record_start()
        elif self._is_stepping and is_within_step(optimizer):
            self._num_inner_steps += 1  # its step() calls that of its base class, which has hooks of its own
            return
        self._is_stepping, self._num_inner_steps = True, 0
        try:
            lr = [float(group["lr"]) for group in optimizer.param_groups]
        except Exception:  # there is none, or it is no such number: then it is not known
            lr = []
        if lr != self._lr:
            self._lr, self._encoded_lr = lr, encode(lr)
        if self._gradients is not None:
            with self.unseen():  # it calls a copy of the model
                self._gradients.before_update(
                    self.updates + 1,
                    self.state.models(),
                    self._used.batches,
                    optimizer,
                    has_closure=_has_closure(args, kwargs),
                )
        self.enter("optimizer_step")

    def _after_step(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        if self._is_probing_optimizer:
            return
        if optimizer is not self._main_optimizer:
            self.enter_between()  # the same update, of another model
            return
        if self._num_inner_steps:
            self._num_inner_steps -= 1
            return
        self._is_stepping = False
        self.updates += 1
        used = self._used.taken()
        self._trained_loader = used[-1].loader if used else None
        digests = self.state.digests()
        python, numpy, by_torch = rng_digests()
        of_numpy = "null" if numpy is None else f'"{numpy}"'
        # Encoded here, for its sample ids are encoded already. Digests need no escaping.
        self._recorder.emit_encoded(
            Kind.UPDATE,
            f',"params":"{digests["params"]}","optimizer":"{digests["optimizer"]}","buffers":"{digests["buffers"]}"'
            f',"python_random":"{python}","numpy_random":{of_numpy},"torch_random":"{by_torch}"'
            f',"scaler":{self._scalers.encoded()},"lr":{self._encoded_lr}'
            f',"ids":{self._used.encoded_ids(used)}'
            f',"sharded":{"true" if self.state.is_sharded else "false"}'
            f',"epoch":{used[-1].epoch if used else "null"},"batches":{len(used)}',
        )

    def _skipped(self) -> None:
        """A GradScaler made no update of what was computed: it overflowed."""
        used = self._used.taken()
        if self._gradients is not None:
            self._gradients.skipped()
        self._recorder.left_out += 1
        self._recorder.emit_encoded(Kind.SKIPPED, f',"ids":{self._used.encoded_ids(used)},"batches":{len(used)}')

    # -- state ---------------------------------------------------------------------------------------------------

    def final_state(self) -> dict[str, Any]:
        """Digests and magnitudes for the script's end; empty if it made no update."""
        if self._main_optimizer is None:
            return {}
        return {**self.state.digests(), "magnitudes": self.state.magnitudes()}

    def _match_step(self, parameters: str, optimizer: str | None = None) -> None:
        if self._matched_step is None or optimizer is not None:
            self._matched_step = self._resolve_step(parameters, optimizer)
        if self._claimed_step is None and self._matched_step is not None:
            self.updates = self._matched_step  # the script does not say where it resumes; its state does

    def _record_start(self) -> None:
        state: dict[str, Any] = self.state.digests()
        self._match_step(state["params"], state["optimizer"])
        here = self._recorder.step
        self._recorder.step = self.updates
        state["buffers"] = self.state.digest_of_buffers(self._untouched)
        self._untouched = {}
        self._recorder.emit(Kind.STATE, **state, matched_step=self._matched_step, claimed_step=self._claimed_step)
        self._recorder.step = here


def _has_closure(args: Any, kwargs: Any) -> bool:
    """Whether a call of ``step`` with these, the optimizer first, computes losses itself."""
    return any(map(callable, (*args[1:], *kwargs.values())))
