"""Torchrun's own elastic agent in a forked process, starting its ranks by fork as well.

The command line is the one a cold run gives to ``torchrun``. Only one thing differs: where torchrun would start a
Python interpreter for each rank, the rank is forked from this process, which has imported torch already.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import os
import random
import select
import signal
import stat
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, ClassVar, NamedTuple, NoReturn

import torch.distributed.elastic.agent.server.api
import torch.distributed.elastic.events as events
import torch.distributed.elastic.multiprocessing.api as elastic
import torch.distributed.elastic.rendezvous.api as rendezvous
import torch.distributed.elastic.rendezvous.dynamic_rendezvous as dynamic_rendezvous
import torch.distributed.run
from torch._C import _distributed_c10d as _C
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

from harness.rank import main, ports

LOOK_S = 0.5  # how often torchrun is to look at its ranks while none has ended


class ForkedProcess:
    """A forked rank, as torchrun's handler sees a ``subprocess.Popen``.

    Attributes:
        pidfd: to wait with for its end; None where the kernel has none; and from its end on.
        is_ended: the agent has sent it a signal, to end it.
    """

    running: ClassVar[set[ForkedProcess]] = set()

    def __init__(self, local_rank: int, body: Callable[[], int]) -> None:
        self.local_rank = local_rank
        self.is_ended = False
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _leave_with(body)
        self.pidfd: int | None = None
        with suppress(OSError):
            self.pidfd = os.pidfd_open(self.pid)
        self.running.add(self)

    def poll(self) -> int | None:
        self.reap([self])
        return self.returncode

    @classmethod
    def reap(cls, processes: Iterable[ForkedProcess]) -> None:
        """Ask each for its end; those that had failed by themselves are told of in one line, in torchrun's words.

        torchrun tells of one alone, the first of those that it finds dead when it looks: of two that ended within a
        hundredth of a second it may be the one that fell with the other.
        """
        failed = []
        for process in processes:
            if process.returncode is None and (found := os.waitpid(process.pid, os.WNOHANG))[0]:
                process.returncode = os.waitstatus_to_exitcode(found[1])
                cls.running.discard(process)
                if process.pidfd is not None:
                    os.close(process.pidfd)
                    process.pidfd = None
                if process.returncode and not process.is_ended:
                    failed.append(process)
        if failed:
            each = (f"failed (exitcode: {p.returncode}) local_rank: {p.local_rank} (pid: {p.pid})" for p in failed)
            with suppress(OSError):  # a full disk: the ranks are to be ended all the same
                os.write(1, f"found dead at {time.monotonic_ns()}: {' '.join(each)}\n".encode())

    def wait(self, timeout: float | None = None) -> int:
        ends = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if ends is not None and time.monotonic() >= ends:
                raise subprocess.TimeoutExpired(f"rank process {self.pid}", timeout or 0.0)
            time.sleep(0.002)  # as Popen.wait with a timeout does
        return code


def wait_for_an_end(interval_s: float) -> None:
    """Wait until a rank ends, and then, for those that fall with it, as long as one that looks again and again does.

    Returns after ``LOOK_S`` at the latest. To look costs a tenth of a millisecond, and a run of seconds would be looked
    at some hundred times.
    """
    running = {process.pidfd: process for process in ForkedProcess.running}
    ends = select.poll()
    for pidfd in running:
        if pidfd is not None:
            ends.register(pidfd, select.POLLIN)
    if running and None not in running:
        if not (ready := ends.poll(1000 * LOOK_S)):
            return
        ForkedProcess.reap([running[pidfd] for pidfd, _ in ready])
    time.sleep(interval_s)


class ForkHandler(SubprocessHandler):
    """Starts a rank by fork; ending it (its whole process group) is torchrun's own code."""

    def _popen(self, args: tuple[str, ...], env: dict[str, str]) -> Any:
        script, *script_args = args[args.index("harness.rank.main") + 1 :]
        agents = _pipes()

        def body() -> int:
            os.setsid()  # as torchrun does for a rank: start_new_session=True
            # ... and close_fds=True: else every rank would hold the agent's store open. But what the fork itself has
            # made is libuv's: in each process that the rank forks it closes these numbers, whatever they then are.
            _close_all_but(pipe.fd for pipe in _pipes() - agents)
            os.environ.update(env)
            # What an interpreter of its own does at import: read the debug level, and seed from the system's entropy
            # (else a script that forgot to seed would repeat itself here, and nowhere else).
            _C.set_debug_level_from_env()
            random.seed()
            if (numpy := sys.modules.get("numpy")) is not None:
                numpy.random.seed()
            return main.run(script, list(script_args))

        return ForkedProcess(self.local_rank_id, body)

    def close(self, death_sig: signal.Signals | None = None) -> None:
        self.proc.is_ended = True  # type: ignore[attr-defined]  # it is a ForkedProcess
        super().close(death_sig)


class _Pipe(NamedTuple):
    """An end of a pipe that is open in this process."""

    fd: int
    inode: int


def _pipes() -> set[_Pipe]:
    found = set()
    for fd in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        with suppress(OSError):  # what listed them
            status = os.fstat(fd)
            if stat.S_ISFIFO(status.st_mode):
                found.add(_Pipe(fd, status.st_ino))
    return found


def _close_all_but(kept: Iterable[int]) -> None:
    """Close every descriptor from 3 on that is not among them."""
    first = 3
    for fd in sorted(kept):
        os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def be_agent(args: list[str]) -> NoReturn:
    """Run torchrun with these arguments in this process, and leave it as the command would."""
    starts_ranks: Any = elastic  # Any: names are replaced
    starts_ranks.get_subprocess_handler = _fork_handler
    _leave_out_waits()
    names = vars(rendezvous)
    names["get_free_port"] = functools.partial(ports.outside_the_range, names["get_free_port"])

    def body() -> int:
        torch.distributed.run.main(args)
        return 0

    _leave_with(body)


def _leave_out_waits() -> None:
    """Half of a warm run's time would go into habits of torchrun's that change nothing here.

    Its rendezvous asks for its caller's name by ``inspect.stack()``, which looks for the module of every frame among
    all that are loaded (30 ms with torch, a dozen times a launch); and it spreads the first joins of many nodes over
    0.3 s, where there is one node. Its agent looks at its ranks at an interval, and for its own name at each event.
    """
    agent = vars(torch.distributed.elastic.agent.server.api)
    agent["time"] = SimpleNamespace(**vars(time) | {"sleep": wait_for_an_end})
    agent["_get_fq_hostname"] = functools.cache(agent["_get_fq_hostname"])
    joining, recorded_events = vars(dynamic_rendezvous), vars(events)
    joining["inspect"] = recorded_events["inspect"] = SimpleNamespace(stack=_callers)
    delay = joining["_delay"]
    joining["_delay"] = lambda seconds: None if isinstance(seconds, tuple) else delay(seconds)


def _callers() -> list[inspect.FrameInfo]:
    """What ``inspect.stack()`` returns, without source lines."""
    callers = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        callers.append(inspect.FrameInfo(frame, code.co_filename, frame.f_lineno, code.co_name, None, None))
        frame = frame.f_back
    return callers


def _fork_handler(
    entrypoint: str,
    args: tuple[Any, ...],
    env: dict[str, str],
    stdout: str | None,
    stderr: str | None,
    local_rank_id: int,
    numa_options: Any = None,
) -> ForkHandler:
    return ForkHandler(entrypoint, args, env, stdout, stderr, local_rank_id, numa_options)


def _leave_with(body: Callable[[], int]) -> NoReturn:
    """End this forked process as an interpreter of its own would end, with what ``body`` returns or raises."""
    code = 1
    try:
        try:
            code = body()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            traceback.print_exc()
        threading._shutdown()  # type: ignore[attr-defined]  # the interpreter's own first step at its end
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it has ended: only the exit code is still to come
        os._exit(code)
