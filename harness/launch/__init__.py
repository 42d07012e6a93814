"""Launchers: one file per kind beside ``base``, which says what a launcher is.

``LAUNCHERS`` maps the names that scenario files and ``--launcher`` use to how one is made.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.launch.base import Launcher
from harness.launch.torchrun import TorchrunLauncher
from harness.launch.warm import WarmLauncher

LAUNCHERS: dict[str, Callable[[], Launcher]] = {"warm": WarmLauncher, "torchrun": TorchrunLauncher}

__all__ = ["LAUNCHERS", "Launcher"]
