"""The fault kinds: every module of this folder is read, so a new kind is one new file.

``base`` says what a kind has to write; ``KINDS`` maps each name to its class.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from harness.faults.base import At, Fault

__all__ = ["KINDS", "At", "Fault", "load_fault"]


def _discover() -> dict[str, type[Fault]]:
    kinds: dict[str, type[Fault]] = {}
    for module in pkgutil.iter_modules(__path__):
        for value in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Fault) and "kind" in vars(value):
                kinds[vars(value)["kind"]] = value
    return dict(sorted(kinds.items()))


KINDS = _discover()


def load_fault(raw: dict[str, Any]) -> Fault:
    """The fault that ``dataclasses.asdict`` was made from.

    Raises:
        KeyError: unknown kind.
        TypeError: unknown field.
    """
    fields = dict(raw)
    return KINDS[fields["kind"]](**{**fields, "at": At(**fields["at"])})
