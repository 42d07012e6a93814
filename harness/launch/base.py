"""What a launcher is, and the proof that nothing of a run is left."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import psutil

import harness
from harness.errors import LaunchError
from harness.plan import Plan
from harness.wire import ALIVE, OUTCOME_JSON

# How much longer than the scenario's deadline a launcher waits for the supervisor: evidence, ending, sweeping.
GRACE_S = 20.0


class Launcher(ABC):
    """Runs plans, one at a time. A context manager: leaving it ends every process it keeps."""

    @abstractmethod
    def launch(self, plan: Plan, run_dir: Path, env: Mapping[str, str]) -> None:
        """Run the plan written in ``run_dir``; on return outcome.json is there and nothing of the run is left.

        Args:
            env: environment of the ranks beside the plan's own, such as the leased GPUs.

        Raises:
            LaunchError: the run could not be started, or ended without an outcome.
        """

    @abstractmethod
    def close(self) -> None:
        """End every process this launcher keeps."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def child_environment() -> dict[str, str]:
    """The controller's environment, with this very package importable, whether it is installed or not."""
    root = str(Path(harness.__file__).parents[1])
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "PYTHONHASHSEED": "0",  # sets and dicts of the script's in the same order in every run
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
    }


def require_outcome(run_dir: Path, what_happened: str, output: IO[bytes]) -> None:
    """Raises LaunchError, with the end of the supervisor's ``output``, if the run left no outcome."""
    if not (run_dir / OUTCOME_JSON).exists():
        raise LaunchError(f"{run_dir}: {what_happened}, and it left no {OUTCOME_JSON}\n{tail_of(output)}".rstrip())


def tail_of(output: IO[bytes]) -> str:
    """The last lines of what was written to ``output``."""
    output.seek(0)
    return output.read()[-2000:].decode(errors="replace").strip()


def prove_nothing_left(run_dir: Path) -> None:
    """End whatever still holds the run's lock, and add it to the leftovers of outcome.json, if there is one.

    The supervisor has swept already; this finds what escaped it, or what it left because it was killed itself. A
    program that a rank started by exec does not hold the lock unless it inherited the descriptor.

    Raises:
        LaunchError: something holds the lock and cannot be ended.
    """
    holders = _holders(run_dir)
    if not holders:
        return
    for process in holders:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(holders, timeout=5.0)
    path = run_dir / OUTCOME_JSON
    if path.exists():  # else the run broke off: its LaunchError says so
        outcome = json.loads(path.read_text())
        outcome["leftovers"] += [f"process {process.pid} still held the run's lock" for process in holders]
        path.write_text(json.dumps(outcome, indent=1) + "\n")
    if _holders(run_dir):
        raise LaunchError(f"{run_dir / ALIVE}: still held by {_holders(run_dir)}; end these processes by hand")


def is_gone(run_dir: Path) -> bool:
    """Whether no process of the run is left: its lock is free."""
    path = run_dir / ALIVE
    if not path.exists():
        return True
    with path.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def wait_until_gone(run_dir: Path, within_s: float) -> None:
    """Give what is left of the run the time to end by itself."""
    ends = time.monotonic() + within_s
    while not is_gone(run_dir) and time.monotonic() < ends:
        time.sleep(0.01)


def _holders(run_dir: Path) -> list[psutil.Process]:
    if is_gone(run_dir):
        return []
    path = str(run_dir / ALIVE)
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if any(f.path == path for f in process.open_files()):
                found.append(process)
    return found


def python_command(module: str, *args: str) -> list[str]:
    return [sys.executable, "-m", module, *args]
