"""What a run was made of: the source files that belong to no installation."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import islice
from types import ModuleType
from typing import Any

_INSTALLED = (sys.prefix, sys.base_prefix, "<")
_known: set[str] = set()
_marker = ""  # sys.modules keeps the order of importing: what comes behind this one is not in ``_known``


def sources() -> list[str]:
    """Paths of the source files of all loaded modules that belong to no installation, sorted."""
    return sorted(_known | _files_of(_new_modules()))


def remember() -> None:
    """Look at all that is loaded now, once for the processes that are forked from this one.

    It takes 3 ms here, and 20 ms in each of them, where a look at a module copies the page that it is on.
    """
    global _marker
    _known.update(sources())
    sys.modules[__name__] = sys.modules.pop(__name__)  # to the end; nobody unloads this one
    _marker = __name__


def _new_modules() -> list[ModuleType]:
    num = 64
    while True:
        # list() of islice() in one go: another thread may import something meanwhile.
        last = list(islice(reversed(sys.modules.items()), num))
        names = [name for name, _ in last]
        if _marker in names:
            return [module for _, module in last[: names.index(_marker)]]
        if len(last) < num:
            return [module for _, module in last]
        num *= 2


def _files_of(modules: Iterable[ModuleType]) -> set[str]:
    files = {*map(_file_of, modules)}
    return {file for file in files if file.startswith("/") and file.endswith(".py") and not file.startswith(_INSTALLED)}


def _file_of(module: Any) -> str:
    """Empty if it has none, or cannot be asked: one that imports at need does so then, and may fail."""
    try:
        return str(getattr(module, "__file__", None) or "")
    except Exception:
        return ""
