"""The default: a parent process that imported torch once forks each run's agent, which forks its ranks.

Real processes, real signals, torchrun's own agent; what is saved is starting interpreters. A run cannot harm the
next one: the parent only forks. If it does not answer, it is replaced.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from socket import socket
from typing import IO, Any

from harness.errors import LaunchError
from harness.launch.base import (
    GRACE_S,
    Launcher,
    child_environment,
    prove_nothing_left,
    python_command,
    require_outcome,
    tail_of,
    wait_until_gone,
)
from harness.launch.nursery import START_S, Nursling, nursling
from harness.plan import Plan

END_S = 5.0  # how long a supervisor whose warm parent has ended may take to end its run
# Read when an interpreter starts or torch is imported, so a forked rank cannot be given another value.
_READ_AT_START = (
    "KMP_",
    "LD_",
    "MALLOC_",
    "MKL_",
    "OMP_",
    "PYTHON",
    "TORCH_CPP_LOG_LEVEL",
    "TORCH_SHOW_CPP_STACKTRACES",
)


class WarmParent:
    """The controller's handle on one warm parent; see harness.rank.warm for the protocol.

    Args:
        packages: the user's, to import at its start.
        env: what its environment has beside ours.
        nursery: the channel of one, for a parent with neither of these.

    Attributes:
        log: what the parent and its supervisors wrote to stderr.
    """

    def __init__(self, packages: tuple[str, ...], env: Mapping[str, str], nursery: socket | None = None) -> None:
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        young = nursling(nursery, self.log) if nursery is not None else None
        self._process: Nursling | subprocess.Popen[bytes] = young or subprocess.Popen(
            python_command("harness.rank.warm", str(os.getpid()), *packages),
            env=child_environment() | dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            start_new_session=True,
        )
        try:
            answer = self._answer(START_S)
            if "error" in answer:
                raise LaunchError(answer["error"])
        except BaseException:
            self.close()
            raise

    def run(self, run_dir: Path, env: Mapping[str, str], within_s: float) -> int:
        """Ask for one run and wait for its end; returns the supervisor's exit code.

        Raises:
            LaunchError: no answer came in time, or the parent has ended.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"run_dir": str(run_dir), "env": dict(env)}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise LaunchError(f"the warm parent has ended ({error})\n{tail_of(self.log)}") from error
        status: int = self._answer(within_s)["status"]
        return status

    def close(self) -> None:
        self._process.kill()  # its supervisors hear of it and end their runs
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self.log):
            if stream is not None:
                with suppress(OSError):  # what it did not read any more
                    stream.close()

    def _answer(self, within_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(within_s):
                raise LaunchError(f"the warm parent did not answer within {within_s} s\n{tail_of(self.log)}")
        try:
            line = self._process.stdout.readline()
        except ConnectionResetError:  # it ended and had not read what was asked
            line = b""
        if not line:
            raise LaunchError(f"the warm parent ended with exit code {self._process.wait()}\n{tail_of(self.log)}")
        answer: dict[str, Any] = json.loads(line)
        return answer


class WarmLauncher(Launcher):
    """Keeps a warm parent for each set of preloaded packages and of variables that are read at its start.

    Args:
        nursery: the channel of one, from where the parent without either comes; None: it is started here.
    """

    def __init__(self, nursery: socket | None = None) -> None:
        self._nursery = nursery
        self._parents: dict[Any, WarmParent] = {}

    def launch(self, plan: Plan, run_dir: Path, env: Mapping[str, str]) -> None:
        at_start = {name: value for name, value in plan.env.items() if name.startswith(_READ_AT_START)}
        key = (plan.preload, *sorted(at_start.items()))
        if key not in self._parents:
            self._parents[key] = WarmParent(plan.preload, at_start, None if any(key) else self._nursery)
        try:
            status = self._parents[key].run(run_dir, env, plan.deadline_s + GRACE_S)
        except BaseException:
            # Whatever it was (an interrupt, a parent that hangs), a fresh parent is the way out.
            self._parents.pop(key).close()
            wait_until_gone(run_dir, END_S)  # the supervisor has heard of it and knows best what to end
            prove_nothing_left(run_dir)
            raise
        prove_nothing_left(run_dir)
        require_outcome(run_dir, f"the supervisor ended with exit code {status}", self._parents[key].log)

    def close(self) -> None:
        while self._parents:
            self._parents.popitem()[1].close()
