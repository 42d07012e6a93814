"""The guarantees: every module of this folder is read, so a new check is one new file.

``base`` says what a check is; ``GUARANTEES`` maps each name to its promise and its check.
"""

from __future__ import annotations

import importlib
import pkgutil
import traceback

from harness.checks.base import GUARANTEES, Guarantee, Verdict
from harness.history import Baseline, History
from harness.wire import GUARANTEE_NAMES

__all__ = ["GUARANTEES", "Guarantee", "Verdict", "check_all", "check_one"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")


def check_all(history: History, baseline: Baseline | None) -> tuple[Verdict, ...]:
    """One verdict per guarantee, in the order of ``GUARANTEE_NAMES``."""
    return tuple(check_one(GUARANTEES[name], history, baseline) for name in GUARANTEE_NAMES)


def check_one(guarantee: Guarantee, history: History, baseline: Baseline | None) -> Verdict:
    """The verdict of one check; ``unknown`` with the traceback if the check itself crashed."""
    try:
        return guarantee.check(history, baseline)
    except Exception as error:
        # A crash of ours must neither pass nor blame the system under test.
        return Verdict(
            guarantee=guarantee.name,
            promise=guarantee.promise,
            outcome="unknown",
            reason=f"the check itself crashed: {type(error).__name__}: {error}",
            seen={"traceback": traceback.format_exc()},
        )
