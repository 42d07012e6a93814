"""Global step, phases, and a digest of everything that matters after each update, without a word in the script.

Phases are seen through torch's global module and optimizer hooks and through ``torch.autograd.backward``. An update is
one step of the first optimizer that ever stepped; others (a discriminator's, say) are digested along with it.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from harness.rank.batches import WaitingBatches
from harness.rank.digest import magnitudes, optimizer_digest, rng_digest, tensors_digest
from harness.rank.recorder import Recorder
from harness.wire import Kind, Phase

_T = TypeVar("_T")
_PROBE = ("torch.distributed.checkpoint.state_dict", "_init_optim_state")
_UPDATING: frozenset[Phase] = frozenset({"load_batch", "forward", "backward", "optimizer_step"})


class Steps:
    """Where the training script is, and what its state is.

    Args:
        resolve_step: digest of the parameters before the first update -> the step they are the state after, as far
            as the records of earlier restarts tell, else None.

    Attributes:
        updates: updates done, in the job's count: a resumed script starts at its checkpoint's step.
    """

    def __init__(self, recorder: Recorder, resolve_step: Callable[[str], int | None]) -> None:
        self._recorder = recorder
        self._resolve_step = resolve_step
        self.updates = 0
        self._claimed_step: int | None = None
        self._matched_step: int | None = None
        # Models weakly: a DDP object that outlives the script's last reference can hang the teardown. Their tensors
        # and the optimizers refer to no DDP object, so the end state can still be read when the model is gone.
        self._models: list[weakref.ref[torch.nn.Module]] = []
        self._optimizers: list[torch.optim.Optimizer] = []
        self._named_parameters: list[tuple[str, torch.Tensor]] = []
        self._named_buffers: list[tuple[str, torch.Tensor]] = []
        self._started = False
        self._is_probing_optimizer = False
        self._buffers_before: str | None = None
        self._lr: list[float] = []
        self._waiting = WaitingBatches()
        self._has_loaders = False
        self._used: list[dict[str, Any]] = []  # batches of the update that is being made

    # -- where the script is -------------------------------------------------------------------------------------

    def enter(self, phase: Phase) -> None:
        self._recorder.enter(phase, self.updates + (phase in _UPDATING))

    def enter_between(self) -> None:
        """Back to the end of the update that was made last, after another optimizer's part of it."""
        self._recorder.enter("optimizer_step", self.updates)

    def batch_loaded(self, seen: dict[str, Any], batch: Any) -> None:
        """A DataLoader handed out ``batch``; ``seen`` is what was recorded of it."""
        self._has_loaders = True
        self._waiting.append(seen, batch)

    def resumed(self, step: int) -> None:
        """The checkpoint store says that it gave the script the state after ``step``."""
        self._claimed_step = self.updates = step

    # -- hooks ---------------------------------------------------------------------------------------------------

    def install(self) -> None:
        register_module_forward_pre_hook(self._before_forward)
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)
        self._wrap_backward()
        self._wrap_teardown()

    def _before_forward(self, module: torch.nn.Module, inputs: Any) -> None:
        # Submodules find the phase set already, some of them in evaluation mode; only the outermost call changes it.
        is_training = module.training and torch.is_grad_enabled()
        if self._recorder.phase == "forward" or (self._recorder.phase == "eval" and not is_training):
            return
        if not is_training:
            self._waiting.evaluated()
            self.enter("eval")
            return
        self._used.extend(self._waiting.trained_on(inputs, is_first=not self._started and not self._used))
        if all(known() is not module for known in self._models):
            self._models.append(weakref.ref(module))
        if not self._started and self._buffers_before is None:
            self._look()
            self._buffers_before = tensors_digest(self._named_buffers)
            self._match_step()
        self.enter("forward")

    def _wrap_backward(self) -> None:
        backward = torch.autograd.backward

        @functools.wraps(backward)
        def seen(*args: Any, **kwargs: Any) -> Any:
            self.enter("backward")
            return backward(*args, **kwargs)

        torch.autograd.backward = seen

    def _wrap_teardown(self) -> None:
        destroy = dist.destroy_process_group

        @functools.wraps(destroy)
        def seen(*args: Any, **kwargs: Any) -> Any:
            self.enter("teardown")
            return destroy(*args, **kwargs)

        dist.destroy_process_group = dist.distributed_c10d.destroy_process_group = seen

    def _before_step(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        self._is_probing_optimizer = _is_called_by_probe()
        if self._is_probing_optimizer:
            return
        if all(known is not optimizer for known in self._optimizers):
            self._optimizers.append(optimizer)
        if self._optimizers[0] is not optimizer:
            return
        if not self._started:
            self._started = True
            self._record_start()
        self._lr = [float(group["lr"]) for group in optimizer.param_groups]
        self.enter("optimizer_step")

    def _after_step(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        if self._is_probing_optimizer:
            return
        if self._optimizers[0] is not optimizer:
            self.enter_between()  # the same update, of another model
            return
        self.updates += 1
        used, self._used = self._used, []
        known_ids = [batch["ids"] for batch in used if batch["ids"] is not None]
        self._recorder.emit(
            Kind.UPDATE,
            **self.digests(),
            scaler=None,
            rng=rng_digest(),
            lr=self._lr,
            # No new batch (it was used before, say) is no gap in the record, if there are loaders at all.
            ids=[i for ids in known_ids for i in ids] if len(known_ids) == len(used) and self._has_loaders else None,
            sharded=self._is_sharded(),
            epoch=used[-1]["epoch"] if used else None,
            batches=len(used),
        )

    # -- state ---------------------------------------------------------------------------------------------------

    def digests(self) -> dict[str, str]:
        """Digests of all parameters, optimizer states and buffers known so far."""
        self._look()
        return {
            "params": tensors_digest(self._named_parameters),
            "optimizer": optimizer_digest(self._optimizers),
            "buffers": tensors_digest(self._named_buffers),
        }

    def final_state(self) -> dict[str, Any]:
        """Digests and magnitudes for the script's end; empty if it made no update."""
        return {**self.digests(), "magnitudes": magnitudes(self._named_parameters)} if self._started else {}

    def _look(self) -> None:
        """Read the tensors anew from the models, as long as these are there."""
        if not self._models or all(model() is not None for model in self._models):
            self._named_parameters = list(self._parameters())
            self._named_buffers = list(self._buffers())

    def _is_sharded(self) -> bool:
        """Whether ranks hold parts of the state by design: FSDP2's tensors, the zero-redundancy optimizer."""
        is_zero = any(type(optimizer).__name__ == "ZeroRedundancyOptimizer" for optimizer in self._optimizers)
        return is_zero or any(hasattr(tensor, "to_local") for _, tensor in self._named_parameters)

    def _match_step(self) -> None:
        if self._matched_step is None:
            self._matched_step = self._resolve_step(tensors_digest(self._named_parameters))
        if self._claimed_step is None and self._matched_step is not None:
            self.updates = self._matched_step  # the script does not say where it resumes; its state does

    def _record_start(self) -> None:
        self._look()
        self._match_step()
        here = self._recorder.step
        self._recorder.step = self.updates
        state = self.digests() | {"buffers": self._buffers_before}
        self._recorder.emit(Kind.STATE, **state, matched_step=self._matched_step, claimed_step=self._claimed_step)
        self._recorder.step = here

    def _parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Each parameter of the models once, then what the optimizers hold beside them.

        Names lose DDP's ``module.``, so that a wrapped and an unwrapped model compare equal.
        """
        seen: set[int] = set()
        for model in _alive(self._models):
            for name, parameter in model.named_parameters():
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield name.removeprefix("module."), parameter
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                for index, parameter in enumerate(group["params"]):
                    if id(parameter) not in seen:
                        seen.add(id(parameter))
                        yield str(index), parameter

    def _buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        seen: set[int] = set()
        for model in _alive(self._models):
            for name, buffer in model.named_buffers():
                if id(buffer) not in seen:
                    seen.add(id(buffer))
                    yield name.removeprefix("module."), buffer


def _is_called_by_probe() -> bool:
    """Whether distributed checkpointing makes a fresh optimizer's state, by a step with zero gradients: no update.

    Looked for on the stack, since importing the module in order to patch it would change the script's ending: it brings
    in torch.distributed.nn (see harness.rank.main).
    """
    if _PROBE[0] not in sys.modules:
        return False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (frame.f_globals.get("__name__"), frame.f_code.co_name) != _PROBE:
        frame = frame.f_back
    return frame is not None


def _alive(references: list[weakref.ref[_T]]) -> Iterator[_T]:
    for reference in references:
        if (value := reference()) is not None:
            yield value
