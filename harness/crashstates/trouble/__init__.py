"""The troubles: every module of this folder is read, so a new one is one new file. ``base`` says what it needs."""

from __future__ import annotations

import importlib
import pkgutil

from harness.crashstates.trouble.base import Trouble

__all__ = ["TROUBLES", "Trouble"]


def _discover() -> dict[str, Trouble]:
    found: dict[str, Trouble] = {}
    for module in pkgutil.iter_modules(__path__):
        for value in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Trouble) and "name" in vars(value):
                found[value.name] = value()
    return dict(sorted(found.items()))


TROUBLES = _discover()
