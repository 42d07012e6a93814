"""The scale of each GradScaler: it decides which updates are made, and a resume that forgets it makes others."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from torch.amp.grad_scaler import GradScaler

from harness.rank.recorder import encode


class Scalers:
    """Those that the script has made."""

    def __init__(self) -> None:
        self._made: list[weakref.ref[Any]] = []

    def install(self, on_skip: Callable[[], None]) -> None:
        """Know every scaler of this process from now on; ``on_skip`` hears of each step that is not made."""
        scalers: Any = GradScaler  # Any: a method is replaced
        make = scalers.__init__

        @functools.wraps(make)
        def seen(scaler: Any, *args: Any, **kwargs: Any) -> None:
            make(scaler, *args, **kwargs)
            self._made.append(weakref.ref(scaler))

        step = scalers.step

        @functools.wraps(step)
        def seen_step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            steps_made: list[object] = []
            handle = optimizer.register_step_pre_hook(lambda *_: steps_made.append(None))
            try:
                made = step(scaler, optimizer, *args, **kwargs)
            finally:
                handle.remove()
            if not steps_made:
                on_skip()
            return made

        scalers.__init__, scalers.step = seen, seen_step

    def encoded(self) -> str:
        """JSON: of each scaler that is in use its scale, and the updates since that last changed; null without any."""
        if not self._made:
            return "null"
        states = [scaler.state_dict() for made in self._made if (scaler := made()) is not None]
        return encode([[state["scale"], state["_growth_tracker"]] for state in states if state] or None)
