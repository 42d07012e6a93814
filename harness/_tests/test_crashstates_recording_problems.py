"""What a record cannot tell, it says."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness._tests.recorded_savers import calls_of, done, recording_of
from harness.crashstates.record.recording import late_changes, recorded
from harness.crashstates.record.strace import Truncated
from harness.crashstates.record.tracing import why_unavailable
from harness.errors import RecordError

trouble = why_unavailable()
pytestmark = pytest.mark.skipif(trouble is not None, reason=str(trouble))

LIBC = "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n---\n"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        pytest.param(
            """
            import mmap
            say("at", "saver.py:12")
            with open(directory + "/a", "w+b") as file:
                file.truncate(4096)
                with mmap.mmap(file.fileno(), 0) as memory:
                    memory[:3] = b"abc"
            """,
            r"a is written through a memory map at saver.py:12, which the record cannot follow",
            id="it writes through a memory map",
        ),
        pytest.param(
            "with open('left-behind', 'w') as file: file.write('x')\nos.mkdir(directory + '/a')",
            r"the save leaves /.*/left-behind outside of the checkpoint directory",
            id="it leaves a file outside",
        ),
        pytest.param(
            "os.mkdir(directory + '/a')\nwith open(directory + '/b', 'w') as f: f.write('x')\n"
            "os.rename(directory + '/b', 'taken-out')",
            r"the save leaves /.*/taken-out outside of the checkpoint directory",
            id="it moves a file out",
        ),
        pytest.param(
            "with open('journal', 'w') as file: file.write('long ago')\n---\n"
            "with open('journal', 'r+') as file: file.write('now')\nos.mkdir(directory + '/a')",
            r"the save changes /.*/journal \(write\) outside of the checkpoint directory",
            id="it overwrites a file outside",
        ),
        pytest.param(
            "with open('journal', 'w') as file: file.write('long ago')\n---\n"
            "with open('journal', 'w') as file: file.write('now')\nos.mkdir(directory + '/a')",
            r"the save changes /.*/journal \(openat\) outside of the checkpoint directory",
            id="it empties a file outside",
        ),
        pytest.param(
            "with open('old', 'w') as file: file.write('long ago')\n---\nos.rename('old', directory + '/a')",
            r"/.*/old was there before, and was moved into the checkpoint directory",
            id="it moves in a file that was there before",
        ),
        pytest.param(
            "f = os.open('old', os.O_CREAT | os.O_RDWR)\nos.write(f, b'long ago')\n---\n"
            "os.link('old', directory + '/a')",
            r"/.*/old was there before, and was linked into the checkpoint directory",
            id="it links a file that was there before",
        ),
        pytest.param("pass", r"the save of step 1 did nothing to the checkpoint directory", id="it does nothing"),
        pytest.param(
            f"""{LIBC}
            for name in "ab":
                with open(directory + "/" + name, "w") as file:
                    file.write(name)
            assert libc.renameat2(-100, (directory + "/a").encode(), -100, (directory + "/b").encode(), 2) == 0
            """,
            r"two names were exchanged \(RENAME_EXCHANGE\), which the record cannot follow \(renameat2\)",
            id="it exchanges two names",
        ),
        pytest.param(
            f"""{LIBC}
            r, w = os.pipe()
            os.write(w, b"abc")
            f = os.open(directory + "/a", os.O_CREAT | os.O_WRONLY)
            assert libc.splice(r, None, f, None, ctypes.c_size_t(3), 0) == 3
            """,
            r"a is filled from a pipe or an unknown file, which the record cannot follow \(splice\)",
            id="it fills a file from a pipe",
        ),
        pytest.param(
            f"""{LIBC}
            f = os.open(directory + "/a", os.O_CREAT | os.O_RDWR)
            os.posix_fallocate(f, 0, 16384)
            assert libc.fallocate(f, 8, ctypes.c_long(0), ctypes.c_long(4096)) == 0
            """,
            r"a part of a file is cut out or put in \(fallocate\)",
            id="it cuts a part out of a file",
        ),
        pytest.param(
            """
            f = os.memfd_create("m")
            os.write(f, b"abc")
            g = os.open(directory + "/a", os.O_CREAT | os.O_WRONLY)
            os.sendfile(g, f, 0, 3)
            """,
            r"a copy is made of /memfd:m, which cannot be read any more",
            id="it copies from memory",
        ),
    ],
)
def test_what_the_record_cannot_follow_is_a_problem(tmp_path: Path, body: str, problem: str) -> None:
    problems = recording_of(tmp_path, body).problems
    assert any(re.search(problem, text) for text in problems), problems


def test_io_uring_is_a_problem(tmp_path: Path) -> None:
    body = f"""{LIBC}
    os.mkdir(directory + "/a")
    result = libc.syscall(425, 4, ctypes.create_string_buffer(120))
    with open("result", "w") as file:
        file.write(str(result))
    os.rename("result", directory + "/result")
    """
    recording = recording_of(tmp_path, body)
    if (tmp_path / "checkpoints/result").read_text() == "-1":
        assert recording.problems == ()  # the kernel has none, or forbids it: nothing was missed
        pytest.skip("io_uring is not allowed here")
    assert recording.problems == ("the saver uses io_uring, which the record cannot follow (io_uring_setup)",)


def test_a_memory_map_that_has_nothing_to_do_with_the_checkpoint_is_none(tmp_path: Path) -> None:
    body = """
    import mmap
    with open("/dev/shm/chaos-test", "w+b") as file:
        os.unlink(file.name)
        file.truncate(4096)
        mmap.mmap(file.fileno(), 0).close()
    with open(directory + "/a", "w") as file:
        file.write("x")
    with open(directory + "/a", "rb") as file:
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ).close()
    """
    assert recording_of(tmp_path, body).problems == ()


def test_filling_a_file_from_a_pipe_outside_of_the_checkpoint_is_none(tmp_path: Path) -> None:
    body = f"""{LIBC}
    r, w = os.pipe()
    os.write(w, b"abc")
    assert libc.splice(r, None, os.open("scratch", os.O_CREAT | os.O_WRONLY), None, ctypes.c_size_t(3), 0) == 3
    os.unlink("scratch")
    os.mkdir(directory + "/a")
    """
    assert recording_of(tmp_path, body).problems == ()


def test_appending_to_a_log_outside_is_no_problem(tmp_path: Path) -> None:
    body = """
    log = open("log.txt", "a")
    log.write("started\\n")
    log.flush()
    ---
    log.write("saved\\n")
    log.flush()
    with open("log.txt", "a") as again:
        again.write("more\\n")
    os.mkdir(directory + "/a")
    """
    recording = recording_of(tmp_path, body)
    assert recording.problems == ()
    assert done(recording) == ["mkdir a"]


def overwrite(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("path", "change", "problem"),
    [
        pytest.param("d/a", overwrite, r"by the record, d/a is a file of 3 .*; in the directory .* of 3", id="a byte"),
        pytest.param("d/a", Path.unlink, r"by the record, d/a is a file .*; in the directory it is absent", id="gone"),
        pytest.param("d/b", Path.touch, r"by the record, d/b is absent; in the directory it is a file of 0", id="more"),
        pytest.param("d/a", replace_by_directory, r"d/a is a file .*; in the directory it is a directory", id="kind"),
        pytest.param(
            "l",
            lambda path: (path.unlink(), path.symlink_to("elsewhere")),
            r"by the record, l is a link to d; in the directory it is a link to elsewhere",
            id="a link",
        ),
    ],
)  # fmt: skip
def test_a_directory_that_is_not_as_the_record_says_is_a_problem(
    tmp_path: Path, path: str, change: Callable[[Path], object], problem: str
) -> None:
    body = 'os.mkdir(directory + "/d"); os.symlink("d", directory + "/l"); open(directory + "/d/a", "w").write("abc")'
    calls, origin = calls_of(tmp_path, body)
    assert recorded(calls, origin, (1,)).problems == ()
    change(origin.root / path)
    (found,) = recorded(calls, origin, (1,)).problems
    assert re.search(problem, found), found


def test_every_call_counts(tmp_path: Path) -> None:
    """Without any one of its calls that change something, the record is found out."""
    body = """
    os.mkdir(directory + "/d")
    f = os.open(directory + "/d/a", os.O_CREAT | os.O_WRONLY)
    os.write(f, b"1")
    os.write(f, b"2")
    os.lseek(f, 0, os.SEEK_SET)
    os.write(f, b"3")
    os.ftruncate(f, 9)
    os.rename(directory + "/d/a", directory + "/b")
    os.link(directory + "/b", directory + "/c")
    os.symlink("c", directory + "/l")
    os.unlink(directory + "/b")
    os.chdir(directory)
    os.mkdir("e")
    os.rmdir("d")
    """
    calls, origin = calls_of(tmp_path, body)
    assert recorded(calls, origin, (1,)).problems == ()
    named = {"mkdir", "openat", "write", "lseek", "ftruncate", "rename", "link", "symlink", "unlink", "chdir", "rmdir"}
    chosen = [
        call
        for call in calls
        if call.name in named and call.is_done and not re.match("/dev/|pipe:", getattr(call.arguments[0], "path", ""))
    ]
    assert {call.name for call in chosen} == named
    for call in chosen:
        without = recorded([other for other in calls if other is not call], origin, (1,))
        assert without.problems, call


@pytest.mark.parametrize(
    ("missing", "expected"),
    [("begin 1", "no begin of rank 0's save of step 1"), ("ack 1", "no ack of rank 0's save of step 1")],
)
def test_a_save_that_is_not_in_the_record_is_an_error(tmp_path: Path, missing: str, expected: str) -> None:
    calls, origin = calls_of(tmp_path, 'os.mkdir(directory + "/a")')
    mark = f"chaos-mark {missing}".encode()
    with pytest.raises(RecordError, match=expected):
        recorded([call for call in calls if mark not in call.arguments], origin, (1,))


def test_a_process_that_nobody_started_is_an_error(tmp_path: Path) -> None:
    calls, origin = calls_of(tmp_path, "subprocess.run(['mkdir', directory + '/a'])")
    with pytest.raises(RecordError, match="which no rank started"):
        recorded([call for call in calls if call.name not in ("vfork", "clone", "clone3", "fork")], origin, (1,))


def test_a_write_that_is_longer_than_the_log_keeps_is_a_problem(tmp_path: Path) -> None:
    calls, origin = calls_of(tmp_path, 'os.write(os.open(directory + "/a", os.O_CREAT | os.O_WRONLY), b"x" * 1000)')
    cut = [
        replace(call, arguments=(call.arguments[0], Truncated(b"x" * 99), 1000)) if call.result == 1000 else call
        for call in calls
    ]
    problems = recorded(cut, origin, (1,)).problems
    assert "a write of 1000 bytes is longer than the record keeps (write)" in problems


def test_what_goes_on_after_a_save_has_returned_is_named(tmp_path: Path) -> None:
    body = """
    done = threading.Event()
    ---
    def write():
        go.wait()
        os.mkdir(f"{directory}/late-{step}")
        done.set()
    go = threading.Event()
    os.mkdir(f"{directory}/in-time-{step}")
    threading.Thread(target=write).start()
    say("ack", step)
    go.set()
    done.wait()
    done.clear()
    say("begin", step)
    """
    recording = recording_of(tmp_path, body, steps=(1, 2))
    assert [text.partition(": ")[0] for text in late_changes(recording)] == [
        f"something goes on after the save of step {step} has returned (mkdir of late-{step}, rank 0)"
        for step in (1, 2)
    ]
