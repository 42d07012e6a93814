"""Lines of strace, as calls."""

from __future__ import annotations

import time

import pytest

from harness.crashstates.record.strace import Call, Fd, Log, Truncated
from harness.errors import RecordError

A = Fd(3, "/a")
A_HEX = r"3<\x2f\x61>"


def read(*lines: str) -> list[Call]:
    """The calls of one thread's ``lines``."""
    return Log().feed("".join(f"7  1700000000.250000 {line}\n" for line in lines))


@pytest.mark.parametrize(
    ("line", "name", "arguments", "result"),
    [
        pytest.param("sync() = 0", "sync", (), 0, id="no arguments"),
        pytest.param(rf"fsync({A_HEX}) = 0", "fsync", (A,), 0, id="a descriptor with its path"),
        pytest.param(
            rf'write({A_HEX}, "\x00\xff\x22\x5c\x29\x2c", 6) = 6', "write", (A, b'\x00\xff"\\),', 6), 6, id="bytes"
        ),
        pytest.param(rf'write({A_HEX}, "", 0) = 0', "write", (A, b"", 0), 0, id="no bytes"),
        pytest.param(
            rf'writev({A_HEX}, [{{iov_base="\x61", iov_len=1}}, {{iov_base="\x62\x63", iov_len=2}}], 2) = 3',
            "writev",
            (A, [{"iov_base": b"a", "iov_len": 1}, {"iov_base": b"bc", "iov_len": 2}], 2),
            3,
            id="a list of buffers",
        ),
        pytest.param(
            r'openat(AT_FDCWD<\x2f\x74>, "\x61", O_WRONLY|O_CREAT, 0644) = 3<\x2f\x61>',
            "openat",
            (Fd(-100, "/t"), b"a", "O_WRONLY|O_CREAT", 0o644),
            3,
            id="the working directory, flags, an octal mode",
        ),
        pytest.param(
            r"write(3<\x2f\x61>(deleted), NULL, 0) = 0", "write", (Fd(3, "/a", deleted=True), None, 0), 0, id="deleted"
        ),
        pytest.param(
            r"fsync(3<\x2f\xc3\xa9\x3e\x20\xff>) = 0", "fsync", (Fd(3, "/é> \udcff"),), 0, id="a path that is not ASCII"
        ),
        pytest.param(
            r'write(4<\x2f\x64\x65\x76<char 1:3>>, "\x61", 1) = 1', "write", (Fd(4, "/dev"), b"a", 1), 1, id="a device"
        ),
        pytest.param(
            r'sendto(4<TCP:[127.0.0.1:1->127.0.0.1:2]>, "\x61", 1, 0, NULL, 0) = 1',
            "sendto",
            (Fd(4, "TCP:[127.0.0.1:1->127.0.0.1:2]"), b"a", 1, 0, None, 0),
            1,
            id="a connection, whose name has an arrow in it",
        ),
        pytest.param(
            r"shutdown(4<TCPv6:[[::1]:1->[::1]:2]>, SHUT_WR) = 0",
            "shutdown",
            (Fd(4, "TCPv6:[[::1]:1->[::1]:2]"), "SHUT_WR"),
            0,
            id="a connection, whose name has brackets in it",
        ),
        pytest.param(
            r"pipe2([3<\x70\x69\x70\x65\x3a\x5b\x37\x5d>, 4<\x70\x69\x70\x65\x3a\x5b\x37\x5d>], O_CLOEXEC) = 0",
            "pipe2",
            ([Fd(3, "pipe:[7]"), Fd(4, "pipe:[7]")], "O_CLOEXEC"),
            0,
            id="a list of descriptors",
        ),
        pytest.param(
            "clone3({flags=CLONE_VM|CLONE_THREAD, exit_signal=0, stack_size=0x7f} => {parent_tid=[9]}, 88) = 9",
            "clone3",
            ({"flags": "CLONE_VM|CLONE_THREAD", "exit_signal": 0, "stack_size": 0x7F}, 88),
            9,
            id="what the kernel made of an argument is left out",
        ),
        pytest.param(
            "clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD, child_tidptr=0x7f8) = 9",
            "clone",
            ({"child_stack": None}, {"flags": "CLONE_CHILD_SETTID|SIGCHLD"}, {"child_tidptr": 0x7F8}),
            9,
            id="arguments with names",
        ),
        pytest.param(
            rf"getsockname({A_HEX}, {{sa_family=AF_INET, sin_port=htons(80), "
            rf'sin_addr=inet_addr("\x31")}}, [128 => 16]) = 0',
            "getsockname",
            (A, {"sa_family": "AF_INET", "sin_port": "htons(80)", "sin_addr": r'inet_addr("\x31")'}, [128]),
            0,
            id="words with brackets of their own",
        ),
        pytest.param(
            r'execve("\x61", ["\x61", "\x62"], 0x7ffc /* 38 vars */) = 0',
            "execve",
            (b"a", [b"a", b"b"], 0x7FFC),
            0,
            id="a comment",
        ),
        pytest.param(
            rf"ioctl({A_HEX}, BTRFS_IOC_CLONE or FICLONE, 4) = 0",
            "ioctl",
            (A, "BTRFS_IOC_CLONE or FICLONE", 4),
            0,
            id="words with spaces",
        ),
        pytest.param(
            "rt_sigprocmask(SIG_SETMASK, ~[KILL STOP], [CHLD], 8) = 0",
            "rt_sigprocmask",
            ("SIG_SETMASK", "~[KILL STOP]", ["CHLD"], 8),
            0,
            id="sets of signals",
        ),
        pytest.param(
            r"fcntl(3<\x2f\x61>, F_GETFL) = 0x8401 (flags O_WRONLY|O_APPEND|O_LARGEFILE)",
            "fcntl",
            (A, "F_GETFL"),
            0x8401,
            id="a result in words",
        ),
        pytest.param("lseek(3, -22, SEEK_END)              = 1647", "lseek", (3, -22, "SEEK_END"), 1647, id="aligned"),
        pytest.param("restart_syscall(<... resuming interrupted read ...>) = 1", "restart_syscall", (), 1, id="late"),
    ],
)  # fmt: skip
def test_a_line_is_a_call(line: str, name: str, arguments: tuple[object, ...], result: int) -> None:
    (call,) = read(line)
    assert (call.name, call.arguments, call.result, call.error) == (name, arguments, result, None)
    assert (call.tid, call.t_s, call.is_done) == (7, 1700000000.25, True)


@pytest.mark.parametrize(
    ("line", "result", "error", "injected"),
    [
        pytest.param("fsync(3) = -1 ENOSPC (No space left on device)", -1, "ENOSPC", False, id="it failed"),
        pytest.param("fsync(3) = -1 EIO (Input/output error) (INJECTED)", -1, "EIO", True, id="a failure was injected"),
        pytest.param("fsync(3) = 0 (INJECTED)", 0, None, True, id="a success was injected, so nothing was synced"),
        pytest.param("read(3, 0x7f, 5) = ? ERESTARTSYS (To be restarted)", None, "ERESTARTSYS", False, id="restarting"),
        pytest.param("exit_group(0) = ?", None, None, False, id="it does not return"),
        pytest.param(r'write(3, "\x61", 1 <unfinished ...>) = ?', None, None, False, id="it died in the middle"),
    ],
)
def test_a_call_that_did_not_do_what_was_asked_is_not_done(
    line: str, result: int | None, error: str | None, injected: bool
) -> None:
    (call,) = read(line)
    assert (call.result, call.error, call.injected) == (result, error, injected)
    assert not call.is_done


def test_what_was_read_is_not_kept() -> None:
    reads = read(rf'read({A_HEX}, "\x61\x62", 8) = 2', r'recvfrom(4, "\x61"..., 8, 0, NULL, NULL) = 2')
    assert [call.arguments[1] for call in reads] == [None, None]
    assert [call.result for call in reads] == [2, 2]


def test_a_string_that_was_cut_says_so() -> None:
    whole, cut = read(r'write(1, "\x61\x62", 2) = 2', r'write(1, "\x61\x62"..., 9) = 9')
    assert not isinstance(whole.arguments[1], Truncated)
    assert cut.arguments[1] == Truncated(b"ab")
    assert isinstance(cut.arguments[1], Truncated)


def test_the_descriptor_that_a_call_returns_comes_with_its_path() -> None:
    (call,) = read(r'open("\x61", O_RDONLY) = 5<\x2f\x61>')
    assert call.fd == Fd(5, "/a")


def test_calls_that_overlap_come_in_the_order_in_which_they_ended() -> None:
    log = Log()
    calls = log.feed(
        '7 1.5 mkdir("\\x61", 0777 <unfinished ...>\n'
        "8 2.5 pipe2( <unfinished ...>\n"
        "9 3.5 sync() = 0\n"
        "8 4.5 <... pipe2 resumed>[3, 4], 0) = 0\n"
        "7 5.5 <... mkdir resumed>) = 0\n"
    )
    assert [(call.name, call.tid, call.t_s, call.began, call.ended) for call in calls] == [
        ("sync", 9, 3.5, 2, 2),
        ("pipe2", 8, 2.5, 1, 3),
        ("mkdir", 7, 1.5, 0, 4),
    ]
    assert calls[1].arguments == ([3, 4], 0)
    assert calls[2].arguments == (b"a", 0o777)


def test_a_log_can_be_read_in_pieces_of_any_size() -> None:
    text = '7 1.5 write(1, "\\x61", 1) = 1\n7 1.6 sync( <unfinished ...>\n7 1.7 <... sync resumed>) = 0\n7 1.8 syn'
    log = Log()
    calls = [call for character in text for call in log.feed(character)]
    assert [call.name for call in calls] == ["write", "sync"]
    assert [call.name for call in log.feed("c() = 0\n")] == ["sync"]


def test_ends_of_processes_are_kept_and_signals_are_passed_over() -> None:
    log = Log()
    calls = log.feed(
        "7 1.5 --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=8} ---\n"
        "7 1.6 write(3,  <unfinished ...>\n"
        "7 1.7 +++ killed by SIGKILL +++\n"
        "8 1.8 +++ exited with 3 +++\n"
        "9 1.9 read(4,  <detached ...>\n"
        "5 1.91 ???() = ?\n"
        "6 1.92 ???( <unfinished ...>\n"
        "6 1.93 +++ killed by SIGKILL +++\n"
    )
    assert calls == []
    assert log.ends == {6: "killed by SIGKILL", 7: "killed by SIGKILL", 8: "exited with 3"}


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param("<unfinished ...>", id="while others are at work"),
        pytest.param("<pid changed to 7 ...>", id="while nothing else is written down"),
    ],
)
def test_a_thread_that_calls_execve_goes_on_under_its_process_s_number(rest: str) -> None:
    log = Log()
    calls = log.feed(
        "7 1.1 futex(0x7f <unfinished ...>\n"
        f'8 1.2 execve("\\x61", [], 0x7f {rest}\n'
        "7 1.3 <... futex resumed> <unfinished ...>) = ?\n"
        "7 1.4 +++ superseded by execve in pid 8 +++\n"
        "7 1.5 <... execve resumed>) = 0\n"
    )
    assert [(call.name, call.tid, call.result) for call in calls] == [("futex", 7, None), ("execve", 7, 0)]
    assert log.ends == {}


@pytest.mark.parametrize(
    "line",
    [
        "strace: something else",
        "7 1.5 fsync(3)",
        "7 1.5 fsync 3 = 0",
        '7 1.5 write(3, "\\x6", 1) = 1',
        '7 1.5 write(3, [{iov_base="\\x61", 1) = 1',
        "7 1.5 <... fsync resumed>) = 0",
        "7 1.5 fsync(3) = zero",
        "",
    ],
)
def test_a_line_that_is_not_strace_s_is_an_error_that_shows_it(line: str) -> None:
    log = Log()
    log.feed("7 1.4 sync() = 0\n")
    with pytest.raises(RecordError) as caught:
        log.feed(line + "\n")
    assert "line 2 of the strace log" in str(caught.value)
    assert str(caught.value).endswith(line)


def test_twenty_megabytes_are_read_in_seconds() -> None:
    path = "".join(f"\\x{byte:02x}" for byte in b"/checkpoints/step-100/shard-0.bin")
    small = f'7  1700000000.250000 openat(AT_FDCWD<{path}>, "{path}", O_RDONLY|O_CLOEXEC) = 3<{path}>\n'
    large = f'7  1700000000.250000 write(3<{path}>, "{chr(92)}xff' + "\\x00" * 99_999 + '", 100000) = 100000\n'
    text = small * 20_000 + large * 25
    assert len(text) > 18e6
    began = time.process_time()
    calls = Log().feed(text)
    assert len(calls) == 20_025
    assert calls[-1].arguments[1] == b"\xff" + bytes(99_999)
    assert time.process_time() - began < 5
