"""The scale of each GradScaler: it decides which updates are made, and a resume that forgets it makes others."""

from __future__ import annotations

import functools
import weakref
from typing import Any

from torch.amp.grad_scaler import GradScaler

from harness.rank.recorder import encode


class Scalers:
    """Those that the script has made."""

    def __init__(self) -> None:
        self._made: list[weakref.ref[Any]] = []

    def install(self) -> None:
        """Know every scaler of this process from now on."""
        scalers: Any = GradScaler  # Any: a method is replaced
        make = scalers.__init__

        @functools.wraps(make)
        def seen(scaler: Any, *args: Any, **kwargs: Any) -> None:
            make(scaler, *args, **kwargs)
            self._made.append(weakref.ref(scaler))

        scalers.__init__ = seen

    def encoded(self) -> str:
        """JSON: of each scaler that is in use its scale, and the updates since that last changed; null without any."""
        if not self._made:
            return "null"
        states = [scaler.state_dict() for made in self._made if (scaler := made()) is not None]
        return encode([[state["scale"], state["_growth_tracker"]] for state in states if state] or None)
