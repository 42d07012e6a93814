"""Start torchrun's agent for one run, wait with a deadline, and let nothing of it survive.

    python -m harness.rank.supervisor RUN_DIR PARENT_PID       cold: the agent is the torchrun command
    supervise(run_dir, parent_pid, be_agent)                    warm: the agent is forked

The supervisor leads the run's session and adopts every orphan of it, so that whatever the run started is among its
descendants, however it tried to get away. When its own parent dies it is told by SIGTERM and ends them all.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import psutil

from harness.rank import descendants, evidence, lifeline, shared_memory
from harness.wire import LAUNCHER_LOG, OUTCOME_JSON, PLAN_JSON, RUN_DIR_ENV, expanded

# How long what was started may take to end by itself after the agent did: the workers of a killed rank's DataLoader
# look every 5 s whether it is still there (torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL).
SETTLE_S = 6.0
LOOK_S = 0.5  # how often it looks for ranks that were told to end while they were stopped
_WOKEN_BY = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}
_FAILED = re.compile(rb"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: (\d+)\)")
_FOUND = re.compile(rb"found dead at (\d+): ")  # as only the warm agent says


def supervise(run_dir: Path, parent_pid: int, be_agent: Callable[[list[str]], NoReturn]) -> None:
    """Run the plan in ``run_dir`` to its end and write outcome.json.

    Args:
        be_agent: called in the agent's process with torchrun's arguments.
    """
    os.setsid()
    signal.pthread_sigmask(signal.SIG_BLOCK, _WOKEN_BY)  # they are waited for, not handled
    lifeline.die_with_parent(parent_pid, signal.SIGTERM)
    lifeline.adopt_orphans()
    alive_fd = lifeline.hold_alive(run_dir)
    plan = json.loads((run_dir / PLAN_JSON).read_text())
    _set_environment(run_dir, plan)
    shm_before = shared_memory.names()
    started_ns = time.monotonic_ns()
    agent_pid = _start_agent(run_dir, torchrun_args(run_dir, plan), be_agent)
    asked: list[dict[str, Any]] = []
    exit_code, was_told_to_end = _wait(
        agent_pid, plan["deadline_s"], lambda: asked.extend(evidence.continue_those_told_to_end(run_dir))
    )
    ended_ns = time.monotonic_ns()
    timed_out = exit_code is None and not was_told_to_end
    if timed_out:
        asked += evidence.take(run_dir)
    leftovers = [] if exit_code is None else list(_still_running())
    descendants.end_all()
    leftovers += [*_open_ports(run_dir), *_left_in_shm(run_dir, shm_before)]
    _write_outcome(
        run_dir,
        exit_code=exit_code,
        timed_out=timed_out,
        started_ns=started_ns,
        ended_ns=ended_ns,
        leftovers=leftovers,
        agent_exits=list(_agent_exits(run_dir)),
        asked=asked,
    )
    os.close(alive_fd)


def torchrun_args(run_dir: Path, plan: dict[str, Any]) -> list[str]:
    """The command line of torchrun for this plan, without the program's name: warm and cold runs use the same."""
    return [
        f"--nproc-per-node={plan['ranks']}",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=localhost:0",
        "--local-addr=localhost",
        f"--rdzv-id={plan['name']}",
        f"--max-restarts={plan['max_restarts']}",
        "--monitor-interval=0.01",
        f"--log-dir={run_dir / 'agent'}",
        "--module",
        "harness.rank.main",
        plan["script"],
        *(expanded(arg, run_dir) for arg in plan["args"]),
    ]


def _set_environment(run_dir: Path, plan: dict[str, Any]) -> None:
    defaults = {
        # Else the ranks of a restart can read the addresses of the launch before it from the agent's store:
        # pytorch#135712, seen with gloo on 2.13.0 and 2.14.1.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "OMP_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "TORCH_FR_BUFFER_SIZE": "256",  # else gloo leaves no flight record: harness.rank.traces
    }
    os.environ.update({name: value for name, value in defaults.items() if name not in os.environ})
    os.environ.update(plan["env"])
    os.environ[RUN_DIR_ENV] = str(run_dir)


def _start_agent(run_dir: Path, args: list[str], be_agent: Callable[[list[str]], NoReturn]) -> int:
    supervisor_pid = os.getpid()
    agent_pid = os.fork()
    if agent_pid:
        return agent_pid
    try:
        lifeline.die_with_parent(supervisor_pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WOKEN_BY)
        log = os.open(run_dir / LAUNCHER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, fd in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, fd)
        be_agent(args)
    finally:
        os._exit(70)  # be_agent came back or raised: sysexits.h EX_SOFTWARE


def _wait(agent_pid: int, deadline_s: float, look: Callable[[], None]) -> tuple[int | None, bool]:
    """Returns the agent's exit code (None: still running), and whether this process was told to end.

    Args:
        look: called now and then.
    """
    ends = time.monotonic() + deadline_s
    while True:
        for pid, code in descendants.reap():
            if pid == agent_pid:
                return code, False
        remaining_s = ends - time.monotonic()
        if remaining_s <= 0:
            return None, False
        woken = signal.sigtimedwait(_WOKEN_BY, min(remaining_s, LOOK_S))
        if woken is None:
            look()
        if woken is not None and woken.si_signo != signal.SIGCHLD:
            return None, True


def _still_running() -> Iterator[str]:
    if descendants.settle(descendants.none_left, SETTLE_S):
        return
    for process in descendants.running():
        with suppress(psutil.NoSuchProcess):
            command = " ".join(process.cmdline())[:200]
            yield f"process {process.pid} ({command}) still ran {SETTLE_S} s after the agent had ended"


def _open_ports(run_dir: Path) -> Iterator[str]:
    """Ports of the ranks' stores that a process of this run still has open.

    Whether one can be connected to tells nothing: once it is free any other process of the machine may get it.
    """
    ports = {start["master_port"] for _, _, start in evidence.starts(run_dir)}
    for process in descendants.running():
        with suppress(psutil.Error):
            for connection in process.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN and connection.laddr.port in ports:
                    yield f"port {connection.laddr.port} (the ranks' store) is still open, in process {process.pid}"


def _left_in_shm(run_dir: Path, before: set[str]) -> Iterator[str]:
    pids = [start["pid"] for _, _, start in evidence.starts(run_dir)]
    for name in shared_memory.left_behind(run_dir, before, pids):
        yield f"shared memory {shared_memory.SHM / name} is left"


def _agent_exits(run_dir: Path) -> Iterator[dict[str, int]]:
    told: set[bytes] = set()
    with suppress(OSError):
        for order, line in enumerate((run_dir / LAUNCHER_LOG).read_bytes().splitlines()):
            at = _FOUND.search(line)
            for code, local_rank, pid in _FAILED.findall(line):
                if pid not in told:
                    told.add(pid)
                    found = {"pid": int(pid), "local_rank": int(local_rank), "exit_code": int(code), "order": order}
                    yield found if at is None else found | {"t_ns": int(at[1])}


def _write_outcome(run_dir: Path, **outcome: Any) -> None:
    temporary = run_dir / f".{OUTCOME_JSON}.tmp"
    temporary.write_text(json.dumps(outcome, indent=1) + "\n")
    temporary.replace(run_dir / OUTCOME_JSON)


def _exec_torchrun(args: list[str]) -> NoReturn:
    os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run", *args])


if __name__ == "__main__":
    supervise(Path(sys.argv[1]), int(sys.argv[2]), _exec_torchrun)
