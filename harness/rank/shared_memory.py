"""Which files of shared memory a rank makes, so that one left behind is laid at the right door.

Many programs of a machine make files in /dev/shm. A file counts as a run's own if one of its ranks was seen making it
(from Python), or if its name holds the pid of a rank, as the names of torch's own files do.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from harness.rank.recorder import Recorder
from harness.wire import Kind

SHM = Path("/dev/shm")
_PREFIX = f"{SHM}/"


def watch(recorder: Recorder) -> None:
    """Record every file in /dev/shm that this process opens from Python."""

    def hear(event: str, args: tuple[Any, ...]) -> None:
        # All of Python's audit events come by here: most must leave at the first comparison.
        if event == "open" and isinstance(args[0], str) and args[0].startswith(_PREFIX):
            recorder.emit(Kind.SHM, name=args[0].removeprefix(_PREFIX))

    sys.addaudithook(hear)
    try:
        module: Any = importlib.import_module("_posixshmem")
    except ImportError:  # a Python built without it has no multiprocessing.shared_memory either
        return
    shm_open = module.shm_open  # it raises no audit event

    def seen(path: str, *args: Any, **kwargs: Any) -> Any:
        recorder.emit(Kind.SHM, name=path.removeprefix("/"))
        return shm_open(path, *args, **kwargs)

    module.shm_open = seen


def names() -> set[str]:
    """What is in /dev/shm now."""
    return {path.name for path in SHM.iterdir()} if SHM.is_dir() else set()


def left_behind(run_dir: Path, before: set[str], pids: Iterable[int]) -> Iterator[str]:
    """Names of files that the run made and that are still there.

    Args:
        before: what was there before the run.
        pids: the ranks' process ids.
    """
    new = names() - before
    if not new:
        return
    seen = set()
    for path in run_dir.glob("rank-*/events-*.jsonl"):
        seen.update(re.findall(rb'"kind":"shm".*"name":"([^"]+)"', path.read_bytes()))
    own_pids = {str(pid) for pid in pids}
    for name in sorted(new):
        if name.encode() in seen or own_pids & set(re.findall(r"\d+", name)):
            yield name
