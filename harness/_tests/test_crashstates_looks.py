"""System calls as questions: what each kind of call asks, and what it asks beside the path that it names."""

from __future__ import annotations

import pytest

from harness.crashstates.read.looks import LOOKING, Looker, Looks
from harness.crashstates.read.questions import (
    Below,
    Content,
    Entry,
    Everything,
    Name,
    Names,
    Opened,
    Order,
    Outside,
    Question,
    Target,
)
from harness.crashstates.record.strace import Call, Fd, Value

ROOT = "/nowhere/root"
CWD = Fd(-100, f"{ROOT}/step-1")


def looks(*calls: tuple[str, tuple[Value, ...]], cwd: str = "/elsewhere") -> Looks:
    looker = Looker(ROOT, cwd, Outside())
    return looker.looks([Call(7, 0.0, name, arguments, 0) for name, arguments in calls], [7])


def inside(path: str) -> bytes:
    return f"{ROOT}/{path}".encode()


CALLS: dict[str, tuple[tuple[str, tuple[Value, ...]], list[Question]]] = {
    "open": (("open", (inside("a"), "O_RDONLY")), [Opened("a")]),
    "open that does not follow": (
        ("openat", (CWD, inside("a"), "O_RDONLY|O_NOFOLLOW")),
        [Entry("a"), Opened("a")],
    ),
    "open of a place alone": (("openat", (CWD, inside("a"), "O_RDONLY|O_PATH")), [Opened("a")]),
    "open from the working directory": (("openat", (CWD, b"a", "O_RDONLY")), [Opened("step-1/a")]),
    "open from a directory": (("openat", (Fd(5, f"{ROOT}/x"), b"../a", "O_RDONLY")), [Opened("x/../a")]),
    "openat2": (
        ("openat2", (CWD, b"a", {"flags": "O_RDONLY|O_NOFOLLOW"}, 24)),
        [Entry("step-1/a"), Opened("step-1/a")],
    ),
    "stat": (("newfstatat", (CWD, inside("a"), {}, 0)), [Target("a")]),
    "lstat": (("newfstatat", (CWD, inside("a"), {}, "AT_SYMLINK_NOFOLLOW")), [Name("a")]),
    "fstat": (("newfstatat", (Fd(3, f"{ROOT}/a"), b"", {}, "AT_EMPTY_PATH")), [Target("a")]),
    "statx": (("statx", (CWD, b"a", "AT_STATX_SYNC_AS_STAT", "STATX_ALL", {})), [Target("step-1/a")]),
    "readlink": (("readlink", (inside("latest"), b"x", 99)), [Entry("latest")]),
    "a listing": (("getdents64", (Fd(3, ROOT), None, 32768)), [Names("")]),
    "a listing elsewhere": (("getdents64", (Fd(3, "/proc/self/fd"), None, 32768)), []),
    "rename": (("rename", (inside("a"), inside("b"))), [Entry("a"), Below("a"), Entry("b"), Names("b")]),
    "rename in from elsewhere": (("rename", (b"/elsewhere/a", inside("b"))), [Entry("b"), Names("b")]),
    "rename of all": (("rename", (b"/nowhere", b"/other")), [Everything("")]),
    "exchange": (
        ("renameat2", (CWD, inside("a"), CWD, inside("b"), "RENAME_EXCHANGE")),
        [Entry("a"), Below("a"), Entry("b"), Below("b")],
    ),
    "rmdir": (("unlinkat", (CWD, b"x", "AT_REMOVEDIR")), [Entry("step-1/x"), Names("step-1/x")]),
    "execve": (("execve", (inside("a"), [b"a"], None)), [Content("a")]),
    "access": (("access", (inside("a"), "F_OK")), [Opened("a")]),
    "unlink": (("unlink", (inside("a"),)), [Entry("a")]),
    "read": (("read", (Fd(3, f"{ROOT}/a"), None, 99)), [Content("a")]),
    "a read of something else": (("read", (Fd(3, "pipe:[7]"), None, 99)), []),
    "mmap": (("mmap", (None, 4096, "PROT_READ", "MAP_PRIVATE", Fd(3, f"{ROOT}/a"), 0)), [Content("a")]),
    "memory of no file": (("mmap", (None, 4096, "PROT_READ", "MAP_PRIVATE|MAP_ANONYMOUS", -1, 0)), []),
    "sendfile": (("sendfile", (Fd(4, "/elsewhere/b"), Fd(3, f"{ROOT}/a"), None, 99)), [Content("a")]),
    "the end of a file": (("lseek", (Fd(3, f"{ROOT}/a"), 0, "SEEK_END")), [Content("a")]),
    "a link": (("symlink", (b"step-1", inside("way"))), [Everything("")]),
    "a second name": (("link", (inside("a"), inside("b"))), [Everything("")]),
    "a second name elsewhere": (("link", (b"/dev/shm/a", b"/dev/shm/b")), []),
    "free space": (("statfs", (inside(""), {})), [Everything("")]),
    "free space elsewhere": (("statfs", (b"/sys/fs/selinux", {})), []),
    "io_uring": (("io_uring_setup", (8, {})), [Everything("")]),
    "the working directory of /proc": (("openat", (CWD, b"/proc/self/cwd/a", "O_RDONLY")), [Everything("")]),
    "a descriptor of /proc": (("openat", (CWD, b"/proc/1/fd/3", "O_RDONLY")), [Everything("")]),
    "the list of descriptors": (("openat", (CWD, b"/proc/self/fd", "O_RDONLY")), []),
    "another process's state": (("openat", (CWD, b"/proc/self/status", "O_RDONLY")), []),
    "a file that has no name any more": (("fstat", (Fd(3, f"{ROOT}/a", deleted=True), {})), [Everything("")]),
    "a call that had begun before": (("openat", ()), [Everything("")]),
    "somewhere else": (("openat", (CWD, b"/usr/lib/x", "O_RDONLY")), []),
    "a name that only begins alike": (("openat", (CWD, f"{ROOT}-2/x".encode(), "O_RDONLY")), []),
}


@pytest.mark.parametrize(("call", "questions"), CALLS.values(), ids=CALLS)
def test_a_call_asks(call: tuple[str, tuple[Value, ...]], questions: list[Question]) -> None:
    asked = [question for question in looks(call).questions if not isinstance(question, Order)]
    assert asked == questions
    assert call[0] in LOOKING


def test_a_relative_path_may_be_of_any_directory_that_a_process_was_in() -> None:
    found = looks(("chdir", (inside("x"),)), ("fchdir", (Fd(3, f"{ROOT}/y"),)), ("access", (b"a", "F_OK")), cwd=ROOT)
    assert {Opened("a"), Opened("x/a"), Opened("y/a")} <= set(found.questions)


def test_what_the_reader_made_itself_holds_nothing_of_the_state() -> None:
    made = ("openat", (CWD, inside("a"), "O_WRONLY|O_CREAT|O_EXCL"))
    found = looks(made, ("rename", (inside("a"), inside("b"))))
    assert list(found.questions) == [Opened("a"), Entry("a"), Entry("b"), Names("b")]
    not_made = ("openat", (CWD, inside("a"), "O_WRONLY|O_CREAT"))
    assert Below("a") in looks(not_made, ("rename", (inside("a"), inside("b")))).questions


def test_only_files_whose_times_were_told_are_compared_by_them() -> None:
    found = looks(("open", (inside("a"), "O_RDONLY")), ("stat", (inside("b"), {})), ("stat", (inside("c"), {})))
    assert list(found.questions)[-1] == Order("b\0c")


def test_a_terminals_call_tells_nothing_of_a_file() -> None:
    looker = Looker(ROOT, "/", Outside())
    call = Call(7, 0.0, "ioctl", (Fd(3, f"{ROOT}/a"), "TCGETS", None), -1, "ENOTTY")
    assert not looker.looks([call], [7]).questions


def test_the_times_of_all_that_was_looked_at_are_compared() -> None:
    found = looks(("stat", (inside("b"), {})), ("stat", (inside("a"), {})), ("getdents64", (Fd(3, ROOT), None, 1)))
    assert list(found.questions) == [Target("b"), Target("a"), Names(""), Order("b\0a")]


def test_threads_are_kept_apart_and_ranks_come_first() -> None:
    looker = Looker(ROOT, "/", Outside())
    calls = [Call(tid, 0.0, "access", (inside(str(tid)), "F_OK"), 0) for tid in (9, 8, 9, 7)]
    assert [question.path for question in looker.looks(calls, [7, 8]).questions][:3] == ["7", "8", "9"]


def test_what_may_have_been_written_is_told() -> None:
    found = looks(
        ("openat", (CWD, inside("a"), "O_RDWR")),
        ("openat", (CWD, inside("b"), "O_RDONLY")),
        ("openat", (CWD, b"/cache/a", "O_RDWR|O_CREAT")),
        ("openat", (CWD, b"/log", "O_WRONLY|O_APPEND")),
        ("openat", (CWD, b"/conf", "O_RDONLY")),
        ("openat", (CWD, b"/dev/null", "O_RDWR")),
    )
    assert found.written == {"a"}
    assert found.outside_written == {"/cache/a", "/log"}
    assert found.outside_seen == {"/cache/a", "/conf"}
