"""Saves and loads of other libraries: that one was made, and of which path. What is in it they alone know.

``torch.save`` and ``torch.load`` are in harness.rank.storage. The functions here are replaced when their module is
imported, since importing it for a script that does without would change that script (see harness.rank.steps).
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from harness.rank.recorder import Recorder
from harness.wire import Kind

# Module -> its functions: under which name they are known, and what each is.
_FUNCTIONS: dict[str, dict[str, tuple[str, Kind]]] = {
    "torch.distributed.checkpoint.state_dict_saver": {
        "save": ("torch.distributed.checkpoint.save", Kind.FOREIGN_SAVE),
    },
    "torch.distributed.checkpoint.state_dict_loader": {
        "load": ("torch.distributed.checkpoint.load", Kind.FOREIGN_LOAD),
    },
    "safetensors.torch": {
        "save_file": ("safetensors.torch.save_file", Kind.FOREIGN_SAVE),
        "load_file": ("safetensors.torch.load_file", Kind.FOREIGN_LOAD),
    },
}


def install(recorder: Recorder) -> None:
    """Record these functions from now on, in modules that are loaded and in those that will be."""
    for name in _FUNCTIONS:
        if (module := sys.modules.get(name)) is not None:
            _replace(recorder, module)
    sys.meta_path.insert(0, _ReplaceOnImport(recorder))


class _ReplaceOnImport(MetaPathFinder):
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _FUNCTIONS:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_replace(module: ModuleType) -> None:
            execute(module)
            _replace(self._recorder, module)

        spec.loader.exec_module = execute_and_replace  # type: ignore[method-assign]
        return spec


def _replace(recorder: Recorder, module: ModuleType) -> None:
    package = sys.modules.get(module.__name__.rpartition(".")[0])
    for name, (by, kind) in _FUNCTIONS[module.__name__].items():
        function = getattr(module, name)
        recorded = _recorded(recorder, kind, by, function)
        setattr(module, name, recorded)
        if getattr(package, name, None) is function:  # a package that was imported before hands on the old one
            setattr(package, name, recorded)


def _recorded(recorder: Recorder, kind: Kind, by: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def seen(*args: Any, **kwargs: Any) -> Any:
        path = _path((*args, *kwargs.values()))
        if kind is Kind.FOREIGN_LOAD:
            recorder.emit(kind, by=by, path=path)
        result = function(*args, **kwargs)
        if kind is Kind.FOREIGN_SAVE:
            recorder.emit(kind, by=by, path=path)
        return result

    return seen


def _path(given: tuple[Any, ...]) -> str | None:
    """The first path among the arguments; that of a storage reader or writer counts."""
    paths = (value if isinstance(value, (str, os.PathLike)) else getattr(value, "path", None) for value in given)
    return next((os.fspath(path) for path in paths if isinstance(path, (str, os.PathLike))), None)
