"""The reference: the real ``torchrun`` command line, a fresh interpreter for it and for every rank."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from harness.launch.base import (
    GRACE_S,
    Launcher,
    child_environment,
    prove_nothing_left,
    python_command,
    require_outcome,
)
from harness.plan import Plan


class TorchrunLauncher(Launcher):
    """Cold: seconds a run. What the warm launcher must agree with."""

    def launch(self, plan: Plan, run_dir: Path, env: Mapping[str, str]) -> None:
        command = python_command("harness.rank.supervisor", str(run_dir), str(os.getpid()))
        with tempfile.TemporaryFile() as log:
            supervisor = subprocess.Popen(
                command,
                env=child_environment() | dict(env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            # A supervisor that is killed (SIGKILL) sweeps nothing. Covered: the agent and the ranks, which the kernel
            # ends with their parents, and every process that holds the run's lock (prove_nothing_left): what was
            # forked, in whatever session. Not covered: a program that a rank started with its descriptors closed, as
            # subprocess does, in a session of its own; init adopts it. The warm launcher's parent adopts such a one.
            try:
                supervisor.wait(plan.deadline_s + GRACE_S)
                end = f"the supervisor ended with exit code {supervisor.returncode}"
            except subprocess.TimeoutExpired:
                end = f"the supervisor did not end within {plan.deadline_s + GRACE_S} s"
            finally:
                # SIGTERM, not SIGKILL: on it the supervisor ends all that it started.
                supervisor.terminate()
                with suppress(subprocess.TimeoutExpired):
                    supervisor.wait(GRACE_S)
                prove_nothing_left(run_dir)
            require_outcome(run_dir, end, log)

    def close(self) -> None:
        """Nothing is kept between runs."""
