"""Calls that a traced process makes without being stopped, in real processes under a real strace."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.crashstates.read.looks import LOOKING
from harness.crashstates.record.tracing import attach, why_unavailable
from harness.crashstates.record.unheard import UNHEARD

trouble = why_unavailable()
needs_tracing = pytest.mark.skipif(trouble is not None, reason=str(trouble))
needs_filter = pytest.mark.skipif(
    platform.machine() not in UNHEARD, reason=f"no filter is made for {platform.machine()}: all calls are stopped at"
)

_PROCESS = """
import os, sys, threading
from harness.crashstates.record import unheard
from harness.crashstates.record.tracing import allow_tracing
allow_tracing()
print("ready", flush=True)
sys.stdin.readline()
print(unheard.let_pass(), flush=True)
{body}
print("done", flush=True)
sys.stdin.readline()
"""


def run(tmp_path: Path, body: str, *, calls: list[str], expects_filters: bool = True) -> tuple[bool, str]:
    """Whether the process let calls pass, and strace's log of what it did then."""
    log_path = tmp_path / "log"
    command = [sys.executable, "-c", _PROCESS.format(body=body)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert process.stdin
    assert process.stdout
    try:
        assert process.stdout.readline() == "ready\n"
        with attach(
            [process.pid], log_path, calls=calls, string_limit_bytes=100, expects_filters=expects_filters
        ) as tracer:
            process.stdin.write("\n")
            process.stdin.flush()
            has_passed = process.stdout.readline()
            assert process.stdout.readline() == "done\n"
            process.communicate("\n")
            tracer.detach()
            return has_passed == "True\n", log_path.read_text()
    finally:
        process.kill()
        process.communicate()


_ENDS_OR_STARTS = ("exit", "clone", "fork", "vfork")
_WAYS_TO_CALL = {
    "by itself": "os.mkdir('a'); os.sched_yield()",
    "in a process that it forked": """
pid = os.fork()
if pid == 0:
    os.mkdir('a'); os.sched_yield(); os._exit(0)
os.waitpid(pid, 0)
""",
    "after it had forked": """
if (pid := os.fork()) == 0:
    os._exit(0)
os.waitpid(pid, 0); os.mkdir('a'); os.sched_yield()
""",
    "after it had started a thread": """
thread = threading.Thread(target=os.getpid); thread.start(); thread.join()
os.mkdir('a'); os.sched_yield()
""",
    "after it had run a program": """
import subprocess
subprocess.run(['true'], check=True); os.mkdir('a'); os.sched_yield()
""",
    "in a thread that it started": """
def call():
    os.mkdir('a'); os.sched_yield()
thread = threading.Thread(target=call); thread.start(); thread.join()
""",
    "in a program that it ran": f"""
import subprocess
subprocess.run([{sys.executable!r}, '-I', '-S', '-c', "import os; os.mkdir('a'); os.sched_yield()"], check=True)
""",
}


@needs_tracing
@needs_filter
@pytest.mark.parametrize("body", _WAYS_TO_CALL.values(), ids=_WAYS_TO_CALL.keys())
def test_a_call_of_files_is_seen_and_one_that_says_nothing_of_them_is_not(tmp_path: Path, body: str) -> None:
    has_passed, log = run(tmp_path, body, calls=[*LOOKING, "sched_yield"])
    assert has_passed
    assert re.search(r"mkdir(at)?(\(| resumed>).*= 0$", log, re.MULTILINE)
    assert "sched_yield" not in log


@needs_tracing
@needs_filter
def test_a_thread_that_makes_only_calls_that_pass_is_not_stopped_from_its_beginning(tmp_path: Path) -> None:
    body = """
def call():
    for _ in range(100): os.sched_yield()
thread = threading.Thread(target=call); thread.start(); thread.join()
"""
    _, log = run(tmp_path, body, calls=["sched_yield"])
    assert log.count("sched_yield") < 10


@needs_tracing
def test_where_strace_was_not_told_to_expect_a_filter_there_is_none_and_all_is_seen(tmp_path: Path) -> None:
    has_passed, log = run(tmp_path, _WAYS_TO_CALL["by itself"], calls=[*LOOKING, "sched_yield"], expects_filters=False)
    assert not has_passed
    assert re.search(r"mkdir(at)?(\(| resumed>).*= 0$", log, re.MULTILINE)
    assert "sched_yield" in log


def test_no_call_that_a_reader_is_asked_about_may_pass() -> None:
    for numbers in UNHEARD.values():
        assert not numbers.keys() & set(LOOKING)


@needs_tracing
@needs_filter
def test_the_numbers_are_those_of_the_calls_that_strace_knows_by_these_names(tmp_path: Path) -> None:
    numbers = {
        name: number for name, number in UNHEARD[platform.machine()].items() if not name.startswith(_ENDS_OR_STARTS)
    }
    # Each in a process of its own, with arguments that can do no harm.
    body = f"""
import ctypes
libc = ctypes.CDLL(None)
for name, number in {numbers}.items():
    pid = os.fork()
    if pid == 0:
        for _ in range(50):
            libc.syscall(ctypes.c_long(number), *[ctypes.c_long(-1)] * 6)
        os._exit(0)
    os.waitpid(pid, 0)
    print(pid, name, file=open("pids", "a"))
"""
    _, log = run(tmp_path, body, calls=list(numbers), expects_filters=False)
    for line in (tmp_path / "pids").read_text().splitlines():
        pid, name = line.split()
        assert len(re.findall(rf"^{pid} +[\d.]+ {name}\(", log, re.MULTILINE)) >= 50, name


@needs_tracing
@needs_filter
def test_a_process_with_a_filter_ends_as_any_other(tmp_path: Path) -> None:
    has_passed, log = run(tmp_path, "os.getpid()", calls=["mkdir"])
    assert has_passed
    assert "exited with 0" in log
