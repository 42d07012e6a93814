"""Launchers with real processes: the world that ranks see, bounded ends, and nothing left, whoever was killed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from harness._tests.launched import Run, make_run, shown
from harness.checks.diagnosis import diagnose
from harness.errors import LaunchError
from harness.faults.base import At
from harness.faults.kill import Kill
from harness.launch import LAUNCHERS, Launcher
from harness.launch.base import is_gone
from harness.launch.warm import WarmLauncher
from harness.plan import Expect, Plan, write_plan
from harness.rank import supervisor
from harness.wire import Kind, events_path

COLD = pytest.param("torchrun", marks=pytest.mark.slow)
TRAIN = """
dist.init_process_group("gloo")
for _ in range(5):
    dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
"""


def settle(condition: Callable[[], bool], within_s: float) -> bool:
    """Wait until the condition holds, no longer than ``within_s``; returns whether it does."""
    ends = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > ends:
            return False
        time.sleep(0.01)
    return True


FALLS_AT_ONCE = """
path = sys.path[0] + "/pid"
os.mkfifo(path) if rank == 0 else None
dist.init_process_group("gloo")
dist.barrier()
if rank == 1:
    with open(path, "w") as fifo:
        fifo.write(str(os.getpid()))
    with open(path) as fifo:
        fifo.read()
    os.kill(os.getpid(), signal.SIGTERM)
with open(path) as fifo:
    other = os.pidfd_open(int(fifo.read()))
with open(path, "w"):
    pass
select.select([other], [], [])
dist.barrier()
"""


def test_a_rank_that_ended_is_named_though_its_peer_falls_before_the_agent_looks(run: Run) -> None:
    history = run("import select, signal\n" + FALLS_AT_ONCE)
    codes = {each.local_rank: each.exit_code for each in history.outcome.agent_exits}
    assert codes[1] == -signal.SIGTERM
    last = max(event.t_ns for event in history.of(rank=1))
    assert all(last < (each.t_ns or 0) < history.outcome.ended_ns for each in history.outcome.agent_exits)
    (cause,) = diagnose(history)
    assert (cause.rank, cause.exit_code) == (1, -signal.SIGTERM)


FORKS = """
def opened():
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink("/proc/self/fd/" + name)
        except FileNotFoundError:
            pass
    return found
mine = [os.pipe() for _ in range(20)]
before = opened()
pid = os.fork()
if pid == 0:
    lost = [what for fd, what in before.items() if opened().get(fd) != what]
    with open(f"{sys.path[0]}/lost-{rank}", "w") as file:
        json.dump(lost, file)
    os._exit(0)
os.waitpid(pid, 0)
with open(f"{sys.path[0]}/lost-{rank}") as file:
    lost = json.load(file)
pipes = {os.readlink(f"/proc/self/fd/{fd}") for pair in mine for fd in pair}
show(lost=[what for what in lost if what in pipes or not what.startswith("pipe:")])
"""


@pytest.mark.parametrize("kind", ["warm", COLD])
def test_a_process_that_a_rank_forks_has_its_files(kind: str, tmp_path: Path) -> None:
    with LAUNCHERS[kind]() as launcher:
        history = make_run(launcher, tmp_path)(FORKS)
    assert [shown(tmp_path, history, rank) for rank in (0, 1)] == [{"lost": []}] * 2


@pytest.mark.parametrize("kind", ["warm", COLD])
def test_the_world_of_four_ranks_as_they_record_it(kind: str, tmp_path: Path) -> None:
    with LAUNCHERS[kind]() as launcher:
        history = make_run(launcher, tmp_path)(TRAIN, ranks=4)
    starts = history.of(Kind.START)
    world = sorted((e.rank, e.data["local_rank"], e.data["local_world_size"], e.data["world_size"]) for e in starts)
    assert world == [(0, 0, 4, 4), (1, 1, 4, 4), (2, 2, 4, 4), (3, 3, 4, 4)]
    assert {e.data["master_addr"] for e in starts} == {"localhost"}
    assert len({e.data["pid"] for e in starts}) == 4
    assert history.outcome.exit_code == 0
    assert not history.outcome.leftovers


def test_environment_of_the_plan_reaches_the_ranks(run: Run, tmp_path: Path) -> None:
    history = run(
        'show(mine=os.environ["MINE"], store=os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"])\n'
        "show(level=str(dist.get_debug_level()))\n" + TRAIN,
        env={"MINE": "yes", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
    )
    assert shown(tmp_path, history, 1) == {"mine": "yes", "store": "1", "level": "DebugLevel.DETAIL"}


def test_what_is_read_when_an_interpreter_starts_reaches_warm_ranks_too(run: Run, tmp_path: Path) -> None:
    text = "show(hash=hash('a'), threads=torch.get_num_threads())\n" + TRAIN
    history = run(text, env={"PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "2"})
    assert shown(tmp_path, history, 0) == {"hash": _hash_with_seed("7"), "threads": 2}


def _hash_with_seed(seed: str) -> int:
    command = [sys.executable, "-c", "print(hash('a'))"]
    return int(subprocess.check_output(command, env={**os.environ, "PYTHONHASHSEED": seed}))


def test_output_is_kept_for_each_rank_and_restart(run: Run, tmp_path: Path) -> None:
    text = "show(said=f\"{rank}/{os.environ['TORCHELASTIC_RESTART_COUNT']}\")\n" + TRAIN
    history = run(text, Kill(rank=0, at=At(collective=2)), max_restarts=1)
    assert [shown(tmp_path, history, r, k)["said"] for r in (0, 1) for k in (0, 1)] == ["0/0", "0/1", "1/0", "1/1"]


def test_the_restart_budget_is_kept(run: Run) -> None:
    faults = [Kill(rank=1, at=At(collective=2, restart=k)) for k in range(3)]
    history = run(TRAIN, *faults, max_restarts=2)
    assert history.outcome.exit_code == 1
    assert history.restarts == 2
    assert [e.restart for e in history.of(Kind.FAULT)] == [0, 1, 2]


@pytest.mark.parametrize("leave", ["sys.exit", "os._exit"])
@pytest.mark.parametrize(("given", "code"), [("True", 1), ("False", 0), ("signal.SIGTERM", 15)])
def test_an_exit_code_is_a_whole_number_whatever_it_was_given_as(run: Run, leave: str, given: str, code: int) -> None:
    history = run(f"import signal\n{leave}({given})\n")
    # Of any rank: the first that leaves with another code than 0 is why the launcher ends the others.
    assert {e.data["code"] for e in history.of(Kind.EXIT)} == {code}
    assert history.damaged == ()


def test_a_run_past_its_deadline_ends_with_the_stacks_of_all_ranks(run: Run) -> None:
    history = run(
        "def waits():\n    import signal\n    signal.pause()\nwaits()\n", deadline_s=1.0, collective_timeout_s=0.5
    )
    assert history.outcome.timed_out
    assert history.outcome.exit_code is None
    assert history.outcome.duration_s < 5
    for rank in history.ranks:
        assert "in waits" in history.stacks[rank, 0]


def test_a_rank_that_was_ended_by_the_launcher_is_known_by_its_stacks(run: Run) -> None:
    text = 'dist.init_process_group("gloo")\nif rank == 1:\n    sys.exit(3)\nimport signal\nsignal.pause()\n'
    history = run(text)
    assert "chaos: SIGTERM" in history.stacks[0, 0]
    assert "chaos: SIGTERM" not in history.stacks.get((1, 0), "")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        pytest.param(
            'import subprocess\nsubprocess.Popen(["sleep", "60"], start_new_session=True)\n',
            "sleep 60",
            id="a program in a session of its own",
        ),
        pytest.param(
            "if os.fork() == 0:\n    os.setsid()\n    import signal\n    signal.pause()\n",
            "still ran",
            id="a forked daemon",
        ),
        pytest.param(
            "if rank == 0:\n"
            "    from multiprocessing import resource_tracker, shared_memory\n"
            '    block = shared_memory.SharedMemory(create=True, size=64, name=f"left-{os.getpid()}")\n'
            '    resource_tracker.unregister(block._name, "shared_memory")\n',
            "/dev/shm/left-",
            id="shared memory",
        ),
    ],
)
def test_what_a_script_leaves_behind_is_named_and_ended(run: Run, tmp_path: Path, text: str, named: str) -> None:
    history = run(TRAIN + text)
    try:
        assert any(named in line for line in history.outcome.leftovers), history.outcome.leftovers
        assert is_gone(tmp_path / history.plan.name)
    finally:
        for path in Path("/dev/shm").glob("left-*"):
            path.unlink()


def test_a_clean_run_leaves_nothing(run: Run, tmp_path: Path) -> None:
    history = run(TRAIN)
    assert history.outcome.leftovers == ()
    assert is_gone(tmp_path / history.plan.name)
    pids = {str(event.data["pid"]) for event in history.of(Kind.START)}
    assert len(pids) == 2
    # Others use this directory as well, other tests among them.
    assert [path for path in Path("/dev/shm").iterdir() if pids & set(re.findall(r"\d+", path.name))] == []


@pytest.mark.parametrize("kind", ["warm", COLD])
def test_when_the_controller_is_killed_its_run_ends_too(kind: str, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    script = tmp_path / "script.py"
    # A rank in another session, which no signal to a process group would reach.
    script.write_text(
        "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'],"
        " start_new_session=True)\nimport signal\nsignal.pause()\n"
    )
    write_plan(Plan(name="run", script=str(script), ranks=2, expect=Expect(outcome="clean"), deadline_s=90.0), run_dir)
    code = f"""
from pathlib import Path
from harness.history import load_plan
from harness.launch import LAUNCHERS
run_dir = Path({str(run_dir)!r})
with LAUNCHERS[{kind!r}]() as launcher:
    launcher.launch(load_plan(run_dir), run_dir, {{}})
"""
    controller = subprocess.Popen([sys.executable, "-c", code])
    try:
        records = [run_dir / f"rank-{rank}" / "events-0.jsonl" for rank in (0, 1)]
        family: list[psutil.Process] = []

        def all_are_there() -> bool:
            if not all(p.exists() and "\n" in p.read_text() for p in records):
                return False
            ranks = [psutil.Process(json.loads(p.read_text().splitlines()[0])["pid"]) for p in records]
            family[:] = [p for rank in ranks for p in [rank, *rank.children(recursive=True)]]
            return len(family) == 4

        assert settle(all_are_there, 60.0)
        controller.send_signal(signal.SIGKILL)
        controller.wait()
        _gone, alive = psutil.wait_procs(family, timeout=10.0)
        assert not alive
        assert settle(lambda: is_gone(run_dir), 5.0)
    finally:
        controller.kill()
        controller.wait()


def test_a_warm_parent_that_was_killed_is_replaced(tmp_path: Path) -> None:
    with WarmLauncher() as launcher:
        run = make_run(launcher, tmp_path)
        assert run(TRAIN).outcome.exit_code == 0
        (parent,) = launcher._parents.values()
        parent._process.kill()
        with pytest.raises(LaunchError, match="ended"):
            run(TRAIN)
        assert run(TRAIN).outcome.exit_code == 0


# One that holds the run's lock, and one that does not: subprocess closes the descriptors that it is not told of.
FORKED = "if os.fork() == 0:\n    os.setsid()\n    signal.pause()\n"
STARTED = 'subprocess.Popen(["sleep", "90"], start_new_session=True)\n'


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        pytest.param("warm", FORKED, id="warm, a fork"),
        pytest.param("warm", STARTED, id="warm, a program"),
        pytest.param("torchrun", FORKED, id="torchrun, a fork", marks=pytest.mark.slow),
    ],
)
def test_a_supervisor_that_was_killed_leaves_nothing(kind: str, text: str, tmp_path: Path) -> None:
    record = tmp_path / "run-0" / "rank-0" / "events-0.jsonl"
    family: list[psutil.Process] = []

    def all_are_there() -> bool:
        if not record.exists() or "\n" not in record.read_text():
            return False
        rank = psutil.Process(json.loads(record.read_text().splitlines()[0])["pid"])
        family[:] = [rank, *rank.children()]
        return len(family) == 2

    def kill_supervisor() -> None:
        if settle(all_are_there, 60.0):
            agent, supervisor, *_ = family[0].parents()
            assert agent.ppid() == supervisor.pid
            supervisor.kill()

    killer = threading.Thread(target=kill_supervisor)
    (tmp_path / "next").mkdir()
    with LAUNCHERS[kind]() as launcher:
        killer.start()
        with pytest.raises(LaunchError, match=r"the supervisor ended with exit code -9, and it left no outcome\.json"):
            make_run(launcher, tmp_path)("import signal, subprocess\n" + text + "signal.pause()\n", ranks=1)
        killer.join()
        assert is_gone(tmp_path / "run-0")
        _gone, alive = psutil.wait_procs(family, timeout=1.0)
        for process in alive:
            process.kill()
        assert len(family) == 2
        assert not alive
        assert make_run(launcher, tmp_path / "next")(TRAIN).outcome.exit_code == 0


def test_a_script_that_cannot_be_imported_ends_the_run_with_its_error(run: Run) -> None:
    history = run("import no_such_package\n")
    assert history.outcome.exit_code == 1
    assert {e.data["type"] for e in history.of(Kind.EXCEPTION)} == {"ModuleNotFoundError"}


def test_a_missing_preload_is_told_by_name(tmp_path: Path) -> None:
    with WarmLauncher() as launcher, pytest.raises(LaunchError) as raised:
        make_run(launcher, tmp_path)(TRAIN, preload=("no_such_package",))
    assert str(raised.value) == (
        "preload: the package no_such_package cannot be imported: "
        "ModuleNotFoundError: No module named 'no_such_package'"
    )


def test_a_warm_rank_finds_imported_what_takes_long_to_import(run: Run, tmp_path: Path) -> None:
    history = run("show(there=sorted({'torch._dynamo', 'torch.distributed.nn'} & set(sys.modules)))\n" + TRAIN)
    assert shown(tmp_path, history, 0)["there"] == ["torch._dynamo", "torch.distributed.nn"]


def test_the_warm_parent_makes_no_cuda_call(warm_launcher: Launcher, run: Run, tmp_path: Path) -> None:
    history = run("show(initialized=torch.cuda.is_initialized(), forked=torch.cuda._is_in_bad_fork())\n" + TRAIN)
    assert shown(tmp_path, history, 0) == {"initialized": False, "forked": False}


def test_a_port_counts_as_left_open_only_in_a_process_of_the_run(tmp_path: Path) -> None:
    """As soon as it is free any other process of the machine may get it."""
    listens = "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); "
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        subprocess.Popen(
            [sys.executable, "-c", listens + "sys.stdin.read()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as below,
    ):
        assert below.stdout is not None
        port = int(below.stdout.readline())
        for rank, number in enumerate((other.getsockname()[1], port)):
            path = events_path(tmp_path, rank, 0)
            path.parent.mkdir()
            start = {"t": 1, "kind": "start", "step": 0, "phase": "init", "pid": 1, "local_rank": rank}
            path.write_text(json.dumps({**start, "master_addr": "127.0.0.1", "master_port": number}) + "\n")
        assert [*supervisor._open_ports(tmp_path)] == [
            f"port {port} (the ranks' store) is still open, in process {below.pid}"
        ]
        below.kill()
