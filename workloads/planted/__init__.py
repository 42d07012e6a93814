"""A workload with one bug each, to show that the harness finds it; each script has its scenario beside it.

A planted script is a diff to a workload, ddp_mlp if it names no other, so that the bug is all there is to read and
everything else stays the workload as it is. A scenario that expects ``detected`` names the guarantee that the bug
breaks, and where; the others are healthy controls: unusual, and right.
"""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import ModuleType

from harness.checkpoint import store
from harness.checkpoint.store import CheckpointStore

WORKLOADS = Path(__file__).parents[1]


def patched(diff: str, workload: str = "ddp_mlp") -> str:
    """The source of ``workloads/WORKLOAD.py`` with ``diff`` applied.

    Args:
        diff: blocks of whole lines with an empty line between two of them; a line begins with ``-`` (taken out), ``+``
            (put in) or a space (stays).

    Raises:
        ValueError: what a block takes out or keeps does not stand there exactly once: the workload has changed, and the
            planted bug must follow.
    """
    path = WORKLOADS / f"{workload}.py"
    source = path.read_text()
    for block in filter(None, diff.strip("\n").split("\n\n")):
        lines = [(line[0], line[1:] + "\n") for line in block.split("\n")]
        if unknown := {sign for sign, _ in lines} - set("-+ "):
            raise ValueError(f"a line of a diff begins with {unknown.pop()!r}; allowed: '-', '+' and a space")
        old = "".join(text for sign, text in lines if sign != "+")
        new = "".join(text for sign, text in lines if sign != "-")
        if (count := source.count(f"\n{old}")) != 1:
            raise ValueError(f"these lines stand {count} times in {path}, and should stand once:\n{old}")
        source = source.replace(f"\n{old}", f"\n{new}")
    return source


def run(diff: str = "", *, workload: str = "ddp_mlp", store_class: type[CheckpointStore] = CheckpointStore) -> None:
    """Run a workload in this process, with ``diff`` applied and ``store_class`` for its checkpoints."""
    store.CheckpointStore = store_class  # type: ignore[misc]
    name, source = str(WORKLOADS / f"{workload}.py"), patched(diff, workload)
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)  # what tracebacks show
    module = ModuleType(workload)
    module.__file__ = name
    sys.modules[module.__name__] = module  # so that it counts among the run's sources
    exec(compile(source, name, "exec"), vars(module))
