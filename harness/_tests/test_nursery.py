"""Warm parents from a nursery: each its owner's alone, and gone with its owner, with the nursery, or when told."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness._tests.launched import make_run, shown
from harness._tests.test_launch import TRAIN, settle
from harness.errors import LaunchError
from harness.launch.base import is_gone
from harness.launch.nursery import Nursery, nursling
from harness.launch.warm import WarmLauncher
from harness.plan import Expect, Plan, write_plan

# The rank's parent is the agent, whose parent is the supervisor, whose parent is the warm one.
WHO = "import psutil\nshow(warm=psutil.Process(os.getppid()).parent().ppid())\n"
NEVER_ENDS = "import signal\nsignal.pause()\n"
ASKS = """
import sys
from pathlib import Path
from socket import socket
from harness.history import load_plan
from harness.launch.warm import WarmLauncher
run_dir = Path(sys.argv[1])
with WarmLauncher(socket(fileno=int(sys.argv[2]))) as launcher:
    launcher.launch(load_plan(run_dir), run_dir, {})
"""


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


def test_each_launcher_gets_a_warm_parent_of_its_own(nursery: Nursery, tmp_path: Path) -> None:
    pids = []
    with WarmLauncher(nursery.channel) as one, WarmLauncher(nursery.channel) as other:
        for number, launcher in enumerate((one, other, one)):
            (tmp_path / str(number)).mkdir()
            history = make_run(launcher, tmp_path / str(number))(WHO + TRAIN)
            assert (history.outcome.exit_code, history.outcome.leftovers) == (0, ())
            pids.append(shown(tmp_path / str(number), history, 0)["warm"])
        assert pids[0] == pids[2] != pids[1]
        parents = {psutil.Process(pid).ppid() for pid in pids}
        assert parents == {nursery._process.pid}


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"preload": ("json",)}, id="imports a package of the user's"),
        pytest.param({"env": {"PYTHONHASHSEED": "7"}}, id="has an environment of its own when it starts"),
    ],
)
def test_no_warm_parent_from_the_nursery_is_one_that(
    fields: dict[str, object], nursery: Nursery, tmp_path: Path
) -> None:
    with WarmLauncher(nursery.channel) as launcher:
        history = make_run(launcher, tmp_path)(WHO + TRAIN, **fields)
        warm = psutil.Process(shown(tmp_path, history, 0)["warm"])
        assert warm.ppid() == os.getpid()
        assert "harness.rank.warm" in warm.cmdline()


def test_one_that_was_killed_is_replaced_from_the_nursery(nursery: Nursery, tmp_path: Path) -> None:
    with WarmLauncher(nursery.channel) as launcher:
        run = make_run(launcher, tmp_path)
        first = shown(tmp_path, run(WHO + TRAIN), 0)["warm"]
        os.kill(first, signal.SIGKILL)
        with pytest.raises(LaunchError, match="ended"):
            run(TRAIN)
        history = run(WHO + TRAIN)
        second = shown(tmp_path, history, 0)["warm"]
        assert psutil.Process(second).ppid() == nursery._process.pid
        assert second != first
    assert settle(lambda: _has_ended(second), 5.0)


def test_what_is_wrong_in_one_is_in_the_log_of_who_asked_for_it(nursery: Nursery, tmp_path: Path) -> None:
    with WarmLauncher(nursery.channel) as launcher:
        make_run(launcher, tmp_path)(TRAIN)
        with pytest.raises(LaunchError, match=r"No such file or directory: .*plan\.json"):
            launcher.launch(Plan(name="none", script="none", ranks=1, expect=Expect(outcome="clean")), tmp_path, {})


def test_a_nursery_that_has_ended_is_done_without(tmp_path: Path) -> None:
    with Nursery() as nursery, WarmLauncher(nursery.channel) as launcher:
        run = make_run(launcher, tmp_path)
        first = shown(tmp_path, run(WHO + TRAIN), 0)["warm"]
        nursery._process.kill()
        nursery._process.wait()
        assert settle(lambda: _has_ended(first), 5.0)
        with pytest.raises(LaunchError, match="ended"):
            run(TRAIN)
        history = run(WHO + TRAIN)
        assert psutil.Process(shown(tmp_path, history, 0)["warm"]).ppid() == os.getpid()


@pytest.mark.parametrize("killed", ["who asked", "the nursery"])
def test_a_run_ends_with(killed: str, tmp_path: Path) -> None:
    run_dir, script = tmp_path / "run", tmp_path / "script.py"
    run_dir.mkdir()
    script.write_text(NEVER_ENDS)
    write_plan(Plan(name="run", script=str(script), ranks=2, expect=Expect(outcome="clean"), deadline_s=90.0), run_dir)
    with Nursery() as nursery:
        fd = nursery.channel.fileno()
        asker = subprocess.Popen([sys.executable, "-c", ASKS, str(run_dir), str(fd)], pass_fds=[fd])
        try:
            records = [run_dir / f"rank-{rank}" / "events-0.jsonl" for rank in (0, 1)]
            assert settle(lambda: all(p.exists() and "\n" in p.read_text() for p in records), 90.0)
            ranks = [psutil.Process(json.loads(p.read_text().splitlines()[0])["pid"]) for p in records]
            family = [*ranks, *ranks[0].parents()[:3]]
            assert family[-1].ppid() == nursery._process.pid
            (asker if killed == "who asked" else nursery._process).kill()
            _gone, alive = psutil.wait_procs(family, timeout=10.0)
            assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []
            assert settle(lambda: is_gone(run_dir), 5.0)
        finally:
            asker.kill()
            asker.wait()


def test_it_ends_when_nobody_is_left_who_could_ask() -> None:
    with Nursery() as nursery:
        nursery.channel.shutdown(socket.SHUT_RDWR)
        assert nursery._process.wait(60.0) == 0


def test_one_that_cannot_be_forked_costs_the_others_nothing() -> None:
    with Nursery() as nursery, tempfile.TemporaryFile() as log:
        first = nursling(nursery.channel, log)
        assert first is not None
        pid = nursery._process.pid
        _, most = before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (4, most))  # of the two descriptors that it is sent it gets one
        assert nursling(nursery.channel, log) is None
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        third = nursling(nursery.channel, log)
        assert third is not None
        for young in (first, third):
            assert young.stdout.readline() == b'{"ready": true}\n'


def _has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
