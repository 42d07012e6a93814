"""The controller's handle on the process that imports users' files; see host for the other end."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from harness.crashstates.ranks.channel import Channel, wait_readable
from harness.crashstates.ranks.forked import END_S, Child, Closing, Parent
from harness.crashstates.scratch import scratch
from harness.errors import LaunchError
from harness.launch.base import child_environment, python_command

# A process that has a pool of threads cannot be forked: its children would wait for threads that they do not have.
_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
START_S = 120.0  # importing torch from a cold disk, and the user's file


class Host(Closing):
    """The process that imports users' files and forks their ranks; it can serve many files, one after the other.

    Args:
        preload: packages that it imports once, for all files (``["torch"]``).

    Attributes:
        pid: of this process.
        directory: where its processes write their output to; gone when it is closed.

    Raises:
        LaunchError: it did not start, or cannot import one of them.
    """

    def __init__(self, preload: Sequence[str] = ()) -> None:
        self._scratch = ExitStack()
        self.directory = self._scratch.enter_context(scratch())
        self._num_files = 0
        ours, theirs = Channel.pair()
        output = (self.directory / "host.txt").open("wb")
        self._process = subprocess.Popen(
            python_command("harness.crashstates.ranks.host", str(theirs.fileno()), str(os.getpid()), *preload),
            env=child_environment() | dict.fromkeys(_ONE_THREAD, "1"),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        output.close()
        self.pid = self._process.pid
        self._me = Child(ours, self.directory, "host")
        self._parent = Parent(ours, "the process that imports files")
        try:
            self._await_start()
        except BaseException:
            self._kill()
            raise

    def open_file(self, file: Path) -> tuple[Child, Path]:
        """A process that imports ``file``, and a new directory for what its ranks write."""
        self._num_files += 1
        directory = self.directory / str(self._num_files)
        directory.mkdir()
        return self._parent.fork("file", directory, "file", file=str(file)), directory

    def receive(self, child: Child, until_s: float) -> dict[str, Any] | None:
        return self._parent.receive(child, until_s)

    def end(self, child: Child) -> None:
        """Kill the process of a file, if it has not ended, and wait for its end."""
        self._parent.kill([child])
        self._parent.await_ends([child])

    def stack_of(self, child: Child) -> str:
        return self._parent.stack_of(child)

    def close(self) -> None:
        """End it and all that it started.

        Raises:
            LaunchError: something is left.
        """
        if self._process.poll() is not None and not self.directory.exists():
            return
        try:
            self._parent.end()
            self._process.wait(END_S)
        finally:
            self._kill()

    def _await_start(self) -> None:
        until_s = time.monotonic() + START_S
        if not wait_readable([self._me.channel], until_s):
            raise LaunchError(f"the process that imports files did not start within {START_S:g} s")
        received = self._me.channel.receive()
        if received is None:
            code = self._process.wait(END_S)
            raise LaunchError(
                f"the process that imports files ended with exit code {code}\n{self._me.last_words()}".rstrip()
            )
        if "error" in received[0]:
            raise LaunchError(f"preload: {received[0]['error']}; install it, or leave it out")

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._me.channel.close()
        self._scratch.close()
