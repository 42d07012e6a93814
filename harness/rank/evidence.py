"""What the supervisor takes down of ranks that are still there on the deadline, before it ends them.

A stopped process answers nothing: it is asked, and then continued (SIGCONT), so that it answers from where it was
stopped. That holds for one that torchrun told to end as well, which would else be killed half a minute later, silent.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from harness.rank import descendants
from harness.wire import STACKS_SIGNAL, Kind, flight_path, output_path

STACKS_S = 1.0  # how long the ranks may take to write their stacks before they are ended
FLIGHT_S = 0.2  # ... and then their flight records: those that run Python code do it at once, the others never
_RECORD = re.compile(r"rank-(\d+)/events-(\d+)\.jsonl")
_OF_STATUS = re.compile(r"^State:\s(\S)|^(?:Sig|Shd)Pnd:\s([0-9a-f]+)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One process of a rank that was still there.

    Attributes:
        state: of the process when it was asked, as psutil says it: ``running``, ``sleeping``, ``stopped``, ...
    """

    rank: int
    restart: int
    pid: int
    state: str


def starts(run_dir: Path) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """For each process of a rank, by restart count: rank, restart count and its ``start`` event."""
    found = [(int(m[1]), int(m[2])) for m in map(_RECORD.search, map(str, run_dir.glob("rank-*/events-*.jsonl"))) if m]
    for rank, restart in sorted(found, key=lambda place: (place[1], place[0])):
        with suppress(ValueError, KeyError), (run_dir / f"rank-{rank}/events-{restart}.jsonl").open("rb") as file:
            start = json.loads(file.readline())
            if start["kind"] == Kind.START:
                yield rank, restart, start


def take(run_dir: Path) -> list[dict[str, Any]]:
    """Have every rank that is still alive write its stacks and, if it can, its flight record."""
    mine = {process.pid: process for process in descendants.running()}
    asked: list[Asked] = []
    answers: dict[Path, int] = {}
    for rank, restart, start in starts(run_dir):
        process = mine.get(start["pid"])  # a recorded pid may belong to someone else by now
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if process is not None:
                asked.append(Asked(rank=rank, restart=restart, pid=process.pid, state=process.status()))
                path = output_path(run_dir, rank, restart, "stacks")
                answers[path] = _size_bytes(path)
                process.send_signal(STACKS_SIGNAL)
                if asked[-1].state == psutil.STATUS_STOPPED:
                    process.send_signal(signal.SIGCONT)
    descendants.settle(_Complete(answers), STACKS_S)
    flights = [flight_path(run_dir, one.rank, one.restart) for one in asked]
    descendants.settle(lambda: all(path.exists() for path in flights), FLIGHT_S)
    return [asdict(one) for one in asked]


def continue_those_told_to_end(run_dir: Path) -> list[dict[str, Any]]:
    """Continue every rank that is stopped and has a SIGTERM waiting for it; returns them as ``take`` does."""
    found = []
    for rank, restart, start in starts(run_dir):
        if not _is_stopped_and_told_to_end(start["pid"]):
            continue
        if start["pid"] in {process.pid for process in descendants.running()}:
            os.kill(start["pid"], signal.SIGCONT)
            found.append(Asked(rank=rank, restart=restart, pid=start["pid"], state="stopped"))
    return [asdict(one) for one in found]


class _Complete:
    """Whether every file has grown, and no longer grows: the dump of one rank is many small writes."""

    def __init__(self, before: dict[Path, int]) -> None:
        self._before = before
        self._last: dict[Path, int] = {}

    def __call__(self) -> bool:
        last, self._last = self._last, {path: _size_bytes(path) for path in self._before}
        return last == self._last and all(size > self._before[path] for path, size in self._last.items())


def _size_bytes(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _is_stopped_and_told_to_end(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    found = _OF_STATUS.findall(status)
    is_stopped = any(state == "T" for state, _ in found)
    return is_stopped and any(int(pending or "0", 16) >> (signal.SIGTERM - 1) & 1 for _, pending in found)
