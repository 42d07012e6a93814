"""Training scripts compiled ahead: once in a warm parent, not in every rank of every run.

What a rank runs is still what it reads: the compiled code is taken for the very bytes that it was made of.
"""

from __future__ import annotations

import json
import runpy
import warnings
from contextlib import suppress
from pathlib import Path
from types import CodeType
from typing import Any

from harness.wire import PLAN_JSON

MAX_KEPT = 64
_codes: dict[tuple[bytes, str], CodeType] = {}


def compile_ahead(run_dir: Path) -> None:
    """Compile the script of the run's plan; what cannot be compiled in silence is left for the ranks to tell."""
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("error")
        name = json.loads((run_dir / PLAN_JSON).read_text())["script"]
        source = Path(name).read_bytes()
        if (source, name) not in _codes:
            if len(_codes) == MAX_KEPT:
                del _codes[next(iter(_codes))]
            _codes[source, name] = compile(source, name, "exec", dont_inherit=True)


def install() -> None:
    """Have ``runpy`` take what is compiled already."""
    vars(runpy)["compile"] = _compiled


def _compiled(source: Any, name: str, mode: str, *args: Any, **options: Any) -> Any:
    """What the built-in ``compile`` returns, in a module without ``__future__`` imports, as ``runpy`` is."""
    if isinstance(source, bytes) and (code := _codes.get((source, name))) is not None:
        return code
    return compile(source, name, mode, *args, **{"dont_inherit": True} | options)
