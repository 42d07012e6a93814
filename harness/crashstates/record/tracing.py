"""strace attached to running processes: what they ask of the kernel, as calls, while they run."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from harness.crashstates.record.strace import Call, Log
from harness.crashstates.scratch import scratch
from harness.errors import HarnessError, LaunchError, UnavailableError

ATTACH_S = 20.0  # some ms on an idle machine
DETACH_S = 20.0
_GONE_S = 1.0  # from its last sign of life to its end
_PIECE_BYTES = 8 << 20  # of the log, at a time
STRING_LIMIT_BYTES = 256 << 20  # strace sets five times as much address space aside


def _calls(*lines: str) -> tuple[str, ...]:
    return tuple(call for line in lines for call in line.split())


WRITING = _calls(
    "clone clone3 fork vfork execve execveat chdir fchdir mmap io_uring_setup",
    "open openat openat2 creat close close_range dup dup2 dup3 fcntl socket socketpair accept accept4 pipe pipe2",
    "read readv recvfrom recvmsg sendto sendmsg",  # they move a file's offset, or bring news from another rank
    "write writev pwrite64 pwritev pwritev2 lseek sendfile copy_file_range splice ioctl",
    "truncate ftruncate fallocate fsync fdatasync sync syncfs",
    "rename renameat renameat2 link linkat symlink symlinkat unlink unlinkat rmdir mkdir mkdirat",
    "stat lstat newfstatat statx access faccessat faccessat2",  # whoever finds a name knows who made it
)
"""What changes files, and what orders ranks: of those that save."""

_UNSHOWN = "verbose=!readv,preadv,preadv2,recvmsg"  # what was read fills the log, and nobody asks for it
_ATTACHED = re.compile(r"strace: Process (\d+) attached")
_REFUSED = re.compile(r"strace: attach: ptrace\(\w+, (\d+)\): (.*)")
_PR_SET_PTRACER = 0x59616D61  # linux/prctl.h
_ANYONE = 2**64 - 1  # PR_SET_PTRACER_ANY
_PROBE = f"""
import ctypes, os
ctypes.CDLL(None).prctl({_PR_SET_PTRACER}, ctypes.c_ulong({_ANYONE}))
print(flush=True)
input()
os.getppid()
"""
_CURE = (
    "let strace attach: sysctl kernel.yama.ptrace_scope=0, or run as root, "
    "or the container with --cap-add=SYS_PTRACE (and a seccomp profile that allows ptrace)"
)


class Tracer:
    """A strace that is attached; ``attach`` makes one. A context manager: at its end strace has let go.

    Attributes:
        log_path: strace's own log.
    """

    def __init__(self, strace: subprocess.Popen[str], log_path: Path) -> None:
        self.log_path = log_path
        self._strace = strace
        self._messages = _Messages(strace.stderr)
        self._log = Log()
        self._file: IO[str] | None = None

    @property
    def ends(self) -> dict[int, str]:
        """Thread id -> how it ended, as far as ``new_calls`` has read: ``exited with 1``, ``killed by SIGKILL``."""
        return self._log.ends

    def new_calls(self) -> list[Call]:
        """All calls that have ended since the last time, in the order in which they ended.

        Does not wait. strace writes a call down before it lets the process go on: once a process has answered (over
        a pipe, say), what the same thread had done before its answer is among these.

        Raises:
            RecordError: the log cannot be understood.
        """
        if self._file is None:
            self._file = self.log_path.open(encoding="ascii", newline="\n")
        calls: list[Call] = []
        while text := self._file.read(_PIECE_BYTES):
            calls += self._log.feed(text)
        return calls

    def detach(self) -> None:
        """Let go of the processes, which run on; afterwards ``new_calls`` has all that is still to come. Twice is fine.

        Raises:
            LaunchError: strace did not let go in time, or had ended by itself while processes were traced.
        """
        self._strace.terminate()
        try:
            status = self._strace.wait(DETACH_S)
        except subprocess.TimeoutExpired:
            self._strace.kill()
            self._strace.wait()
            raise LaunchError(f"strace did not let go within {DETACH_S:g} s, and was killed") from None
        finally:
            self._messages.join()
        if status not in (0, -15):  # 0: the last of the processes had ended before; 15: SIGTERM
            raise LaunchError(f"strace ended with {status}: {self._messages.text()}")

    def has_ended(self) -> bool:
        """Whether strace is gone though nobody asked it to go."""
        try:
            self._strace.wait(_GONE_S)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """Detach, and close the log."""
        try:
            self.detach()
        finally:
            if self._file:
                self._file.close()
                self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def wait_attached(self, pids: Sequence[int]) -> None:
        """Return once all threads of ``pids`` are traced; raises what ``attach`` does."""
        missing = set(pids)

        def is_settled(lines: Sequence[str]) -> bool:
            missing.difference_update(int(match[1]) for line in lines if (match := _ATTACHED.match(line)))
            return not missing or any(_REFUSED.match(line) for line in lines)

        self._messages.wait(is_settled, ATTACH_S)
        if not missing:
            return
        names = ", ".join(map(str, sorted(missing)))
        for line in self._messages.lines:
            if refused := _REFUSED.match(line):
                if refused[2] == "Operation not permitted":
                    raise UnavailableError(f"strace may not attach to process {refused[1]} ({refused[2]}): {_CURE}")
                raise LaunchError(f"strace could not attach to process {refused[1]}: {refused[2]}")
        if self._strace.poll() is None:
            raise LaunchError(f"strace did not attach to {names} within {ATTACH_S:g} s: {self._messages.text()}")
        raise LaunchError(f"strace ended instead of attaching to {names}: {self._messages.text()}")


class _Messages:
    """What strace says on stderr, read as it comes, so that it is never held up."""

    def __init__(self, stream: IO[str] | None) -> None:
        assert stream is not None
        self.lines: list[str] = []
        self._is_over = False
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._read, args=[stream], daemon=True)
        self._thread.start()

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with self._news:
                    self.lines.append(line.rstrip())
                    self._news.notify_all()
        with self._news:
            self._is_over = True
            self._news.notify_all()

    def wait(self, is_settled: Callable[[Sequence[str]], bool], timeout_s: float) -> None:
        with self._news:
            self._news.wait_for(lambda: is_settled(self.lines) or self._is_over, timeout_s)

    def join(self) -> None:
        self._thread.join()

    def text(self) -> str:
        others = [line for line in self.lines if not _ATTACHED.match(line)]
        return "; ".join(others[-3:]) or "it said nothing"


def attach(
    pids: Sequence[int],
    log_path: Path,
    *,
    calls: Sequence[str],
    string_limit_bytes: int,
    inject: Sequence[str] = (),
    expects_filters: bool = False,
) -> Tracer:
    """Attach strace to all threads of ``pids`` and to all that they start; returns once it is attached to them all.

    Args:
        calls: system calls to trace; those that this machine does not have are left out.
        string_limit_bytes: longer data is cut (``Truncated``); names never are.
        inject: expressions for strace's ``-e``: ``inject=write:error=EIO:when=3``. strace counts each thread's calls
            by itself.
        expects_filters: they will let calls pass (``unheard.let_pass``, which says what must be among ``calls``). Not
            with ``inject`` of a signal, which strace then leaves out.

    Raises:
        UnavailableError: strace is not installed, or may not attach; with the cure.
        LaunchError: a process had ended, or strace did not attach in time.
    """
    log_path.write_bytes(b"")  # so that it is there, whenever strace makes its own
    command = ["strace", "-f", "-ttt", "-yy", "-xx", "-a1", "-s", str(string_limit_bytes), "-o", str(log_path)]
    command += ["-e", "trace=" + ",".join(f"?{call}" for call in calls), "-e", _UNSHOWN, "-e", "quiet=personality"]
    for expression in inject:
        command += ["-e", expression]
    for pid in pids:
        command += ["-p", str(pid)]
    if expects_filters:
        # strace prepares for filters only if it starts something itself, and then would not heed SIGTERM.
        command += ["--seccomp-bpf", "--interruptible=waiting", "true"]
    try:
        strace = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", process_group=0
        )
    except FileNotFoundError:
        raise UnavailableError("strace is not installed: install the package strace") from None
    tracer = Tracer(strace, log_path)
    try:
        tracer.wait_attached(pids)
    except BaseException:
        with suppress(LaunchError):  # the first trouble is the one to tell
            tracer.close()
        raise
    return tracer


def allow_tracing() -> None:
    """Let any process of the same user trace this one, where the kernel's Yama would let only its parents.

    For ranks: strace is started beside them, not above them. Does nothing on a kernel without Yama.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(_ANYONE))


def why_unavailable() -> str | None:
    """Why strace cannot trace a running process here, with the cure; None: it can. Tries it, which takes some 0.1 s."""
    command = [sys.executable, "-I", "-S", "-c", _PROBE]
    with (
        scratch() as directory,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child,
    ):
        assert child.stdin
        assert child.stdout
        try:
            child.stdout.readline()  # it has said whom it lets trace it
            with attach([child.pid], directory / "log", calls=["getppid"], string_limit_bytes=16) as tracer:
                child.communicate("\n")
                tracer.detach()
                seen = tracer.new_calls()
            return None if seen else f"strace attached and saw nothing: {_CURE}"
        except HarnessError as error:
            return str(error)
        finally:
            child.kill()


if __name__ == "__main__":
    sys.exit(why_unavailable())
