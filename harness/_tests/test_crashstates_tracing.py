"""strace attached to real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.crashstates.record import tracing
from harness.crashstates.record.strace import Call, Fd, Truncated
from harness.crashstates.record.tracing import WRITING, Tracer, attach, why_unavailable
from harness.errors import LaunchError, UnavailableError

trouble = why_unavailable()
needs_tracing = pytest.mark.skipif(trouble is not None, reason=str(trouble))

_OBEYS = """
import os, sys, threading
from harness.crashstates.record.tracing import allow_tracing
allow_tracing()
{before}
print("ready", flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""
_THREAD = """
r, w = os.pipe()
def sync():
    while os.read(r, 1):
        os.mkdir(f"thread-{len(os.listdir())}")
        os.write(v, b"x")
u, v = os.pipe()
threading.Thread(target=sync, daemon=True).start()
"""
_TRY = """
import contextlib
def attempt(name):
    with contextlib.suppress(OSError):
        os.mkdir(name)
"""


class Obedient:
    """A process that runs the lines that it is told, one after the other."""

    def __init__(self, cwd: Path, before: str = "") -> None:
        command = [sys.executable, "-c", _OBEYS.format(before=before)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=cwd)
        self.pid = self.process.pid
        self._await("ready")

    def run(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        self._await("done")

    def _await(self, word: str) -> None:
        assert self.process.stdout
        assert self.process.stdout.readline() == f"{word}\n"

    def end(self) -> int:
        self.process.communicate()
        return self.process.wait()


@contextmanager
def obedient(cwd: Path, before: str = "") -> Iterator[Obedient]:
    process = Obedient(cwd, before)
    try:
        yield process
    finally:
        process.process.kill()
        process.process.communicate()


def traced(process: Obedient, tmp_path: Path, calls: Sequence[str] = WRITING, inject: Sequence[str] = ()) -> Tracer:
    return attach([process.pid], tmp_path / "log", calls=calls, string_limit_bytes=100, inject=inject)


def mkdirs(calls: Sequence[Call]) -> list[object]:
    return [call.arguments[0] for call in calls if call.name == "mkdir"]


@needs_tracing
def test_new_calls_are_those_since_the_last_time_and_none_is_missing_once_the_process_has_answered(
    tmp_path: Path,
) -> None:
    with obedient(tmp_path) as process, traced(process, tmp_path) as tracer:
        for number in range(200):
            process.run(f"os.mkdir('{number}')")
            assert mkdirs(tracer.new_calls()) == [str(number).encode()]


@needs_tracing
def test_threads_that_were_there_before_and_all_that_is_started_are_traced(tmp_path: Path) -> None:
    with obedient(tmp_path, _THREAD) as process, traced(process, tmp_path) as tracer:
        process.run("os.write(w, b'x'); os.read(u, 1)")
        process.run("import subprocess; subprocess.run(['mkdir', 'of-a-child'], check=True)")
        process.run("t = threading.Thread(target=os.mkdir, args=['of-a-thread']); t.start(); t.join()")
        calls = tracer.new_calls()
    assert mkdirs(calls) == [b"thread-1", b"of-a-child", b"of-a-thread"]
    assert len({call.tid for call in calls if call.name == "mkdir"} - {process.pid}) == 3


@needs_tracing
def test_several_processes_share_one_log_in_the_order_of_their_calls(tmp_path: Path) -> None:
    with obedient(tmp_path) as one, obedient(tmp_path) as other:
        pids = [one.pid, other.pid]
        with attach(pids, tmp_path / "log", calls=["mkdir"], string_limit_bytes=100) as tracer:
            for number in range(10):
                [one, other][number % 2].run(f"os.mkdir('{number}')")
            calls = tracer.new_calls()
    assert mkdirs(calls) == [str(number).encode() for number in range(10)]
    assert [call.tid for call in calls] == pids * 5


@needs_tracing
def test_after_detach_the_log_is_complete_and_the_process_runs_on_untraced(tmp_path: Path) -> None:
    with obedient(tmp_path) as process:
        with traced(process, tmp_path) as tracer:
            process.run("os.mkdir('before')")
            tracer.detach()
            process.run("os.mkdir('after')")
            assert mkdirs(tracer.new_calls()) == [b"before"]
            assert "TracerPid:\t0" in Path(f"/proc/{process.pid}/status").read_text()
        assert process.end() == 0
    assert (tmp_path / "after").is_dir()


@needs_tracing
def test_a_process_may_end_while_it_is_traced(tmp_path: Path) -> None:
    with obedient(tmp_path) as process, traced(process, tmp_path) as tracer:
        process.run("os.mkdir('a')")
        assert process.end() == 0
        tracer.detach()
        assert mkdirs(tracer.new_calls()) == [b"a"]
        assert tracer.ends[process.pid] == "exited with 0"


@needs_tracing
def test_leaving_the_context_lets_go_even_when_an_error_is_under_way(tmp_path: Path) -> None:
    with obedient(tmp_path) as process:
        with pytest.raises(KeyError), traced(process, tmp_path):
            raise KeyError
        assert "TracerPid:\t0" in Path(f"/proc/{process.pid}/status").read_text()


@needs_tracing
def test_a_strace_that_was_killed_is_not_taken_for_a_complete_log(tmp_path: Path) -> None:
    with obedient(tmp_path) as process:
        tracer = traced(process, tmp_path)
        tracer_pid = Path(f"/proc/{process.pid}/status").read_text().partition("TracerPid:")[2].split()[0]
        os.kill(int(tracer_pid), 9)
        with pytest.raises(LaunchError, match="strace ended with -9"):
            tracer.close()


@needs_tracing
def test_data_is_cut_at_the_limit_and_names_are_not(tmp_path: Path) -> None:
    name = "n" * 200
    with obedient(tmp_path) as process, traced(process, tmp_path) as tracer:
        process.run(
            f"f = os.open('{name}', os.O_CREAT | os.O_WRONLY); os.write(f, b'x' * 101); os.write(f, b'x' * 100)"
        )
        calls = tracer.new_calls()
    opened = next(call for call in calls if call.name == "openat" and call.arguments[1] == name.encode())
    assert opened.fd == Fd(opened.result or 0, f"{tmp_path}/{name}")
    cut, whole = [call.arguments[1] for call in calls if call.name == "write" and call.arguments[0] == opened.fd]
    assert isinstance(cut, Truncated)
    assert (cut, whole) == (b"x" * 100, b"x" * 100)
    assert not isinstance(whole, Truncated)


@needs_tracing
def test_a_result_can_be_injected_at_the_kth_call_and_the_log_proves_it(tmp_path: Path) -> None:
    inject = ["inject=mkdir:error=EIO:when=2"]
    with obedient(tmp_path, _TRY) as process, traced(process, tmp_path, inject=inject) as tracer:
        process.run("attempt('a'), attempt('b')")
        calls = [call for call in tracer.new_calls() if call.name == "mkdir"]
    assert [(call.error, call.injected, call.is_done) for call in calls] == [(None, False, True), ("EIO", True, False)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "log"]


@needs_tracing
def test_a_process_can_be_killed_at_the_kth_call_which_is_then_not_done(tmp_path: Path) -> None:
    inject = ["inject=mkdir:signal=SIGKILL:when=2"]
    with obedient(tmp_path) as process, traced(process, tmp_path, inject=inject) as tracer:
        process.run("os.mkdir('a')")
        with pytest.raises(AssertionError):
            process.run("os.mkdir('b')")
        process.process.wait()
        tracer.detach()
        tracer.new_calls()
        assert tracer.ends[process.pid] == "killed by SIGKILL"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "log"]


@needs_tracing
def test_a_reader_is_seen_to_look_at_names_that_are_not_there(tmp_path: Path) -> None:
    with (
        obedient(tmp_path) as process,
        traced(process, tmp_path, ["stat", "newfstatat", "lstat", "getdents64"]) as tracer,
    ):
        process.run("os.path.exists('absent'); os.listdir('.'); os.path.islink('absent')")
        calls = tracer.new_calls()
    looks = [call for call in calls if b"absent" in call.arguments]
    assert [call.error for call in looks] == ["ENOENT", "ENOENT"]
    assert any(call.name == "getdents64" for call in calls)


@needs_tracing
def test_attaching_takes_a_fraction_of_a_second(tmp_path: Path) -> None:
    with obedient(tmp_path) as process:
        began = time.monotonic()
        with traced(process, tmp_path):
            pass
        assert time.monotonic() - began < 5


@needs_tracing
def test_a_process_that_has_ended_is_named(tmp_path: Path) -> None:
    with obedient(tmp_path) as process:
        process.end()
        with pytest.raises(LaunchError, match=f"{process.pid}.*No such process"):
            traced(process, tmp_path)


def test_a_machine_without_strace_is_told_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="install the package strace"):
        attach([os.getpid()], tmp_path / "log", calls=["read"], string_limit_bytes=1)
    assert why_unavailable() == "strace is not installed: install the package strace"


_AS_SOMEBODY = """
import os, sys
from pathlib import Path
from harness.crashstates.record.tracing import attach
from harness.errors import UnavailableError
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    attach([int(sys.argv[1])], Path(sys.argv[2]), calls=["read"], string_limit_bytes=1)
except UnavailableError as error:
    print(error)
"""


@needs_tracing
def test_a_process_that_may_not_be_traced_is_named_with_the_cure() -> None:
    owner = 1 if os.getuid() else os.getpid()  # a process of root's, which nobody else may trace
    command = [sys.executable, "-c", _AS_SOMEBODY, str(owner), "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert f"may not attach to process {owner} (Operation not permitted)" in done.stdout, done.stderr
    assert "ptrace_scope=0" in done.stdout


@needs_tracing
def test_the_probe_tries_it_for_real(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_unavailable() is None
    monkeypatch.setattr(tracing, "_UNSHOWN", "trace=none")
    assert "saw nothing" in str(why_unavailable())
