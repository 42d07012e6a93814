"""Who calls the step of an optimizer: not each one is an update of the script's own, and only the stack tells."""

from __future__ import annotations

import sys
from types import FrameType

import torch

_PROBE = ("torch.distributed.checkpoint.state_dict", "_init_optim_state")
_OPTIMIZERS = sys.modules[torch.optim.Optimizer.__module__].__file__


def is_probing() -> bool:
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


def is_within_step(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the step that begins is part of another one of the same optimizer: torch puts its hooks around each.

    To be asked by such a hook itself.
    """
    frame: FrameType | None = sys._getframe(2)
    num_around = 0
    while frame is not None:
        code, local = frame.f_code, frame.f_locals
        num_around += code.co_name == "wrapper" and code.co_filename == _OPTIMIZERS and local.get("self") is optimizer
        frame = frame.f_back
    return num_around > 1
