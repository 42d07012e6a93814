"""Real programs that save, under a real strace: what they did to files and names, as operations."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness._tests.recorded_savers import check_operations, recording_of
from harness.crashstates.record.tracing import why_unavailable

trouble = why_unavailable()
pytestmark = pytest.mark.skipif(trouble is not None, reason=str(trouble))

LIBC = "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n---\n"


@pytest.mark.parametrize(
    ("body", "operations"),
    [
        pytest.param(
            """
            os.chdir(directory)
            f = os.open("a", os.O_CREAT | os.O_RDWR)
            os.write(f, b"0123")
            os.pwrite(f, b"P", 9)
            os.writev(f, [b"ab", b"", b"cd"])
            os.pwritev(f, [b"x", b"y"], 1)
            os.lseek(f, -2, os.SEEK_END)
            os.write(f, b"E")
            os.lseek(f, 0, os.SEEK_SET)
            os.read(f, 3)
            os.write(f, b"R")
            """,
            [
                "create a",
                "write a @0 0123",
                "write a @9 P",
                "write a @4 abcd",
                "write a @1 xy",
                "write a @8 E",
                "write a @3 R",
            ],
            id="bytes go where the file stands, or where they are told to",
        ),
        pytest.param(
            """
            path = directory + "/a"
            f = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
            os.write(f, b"one")
            with open(path, "r+b", buffering=0) as other:
                other.write(b"O")
                other.seek(0, 2)
                other.write(b"!")
            os.lseek(f, 0, os.SEEK_SET)
            os.write(f, b"two")
            import fcntl
            fcntl.fcntl(f, fcntl.F_SETFL, 0)
            os.lseek(f, 1, os.SEEK_SET)
            os.write(f, b"N")
            """,
            [
                "create a",
                "write a @0 one",
                "write a @0 O",
                "write a @3 !",
                "write a @4 two",
                "write a @1 N",
            ],
            id="with O_APPEND they go to the end, wherever the file stands",
        ),
        pytest.param(
            """
            for text in ("first", "second", ""):
                with open(directory + "/a", "w") as file:
                    file.write(text)
            with open(directory + "/a", "w") as file:
                pass
            """,
            ["create a", "write a @0 first", "truncate a 0", "write a @0 second", "truncate a 0"],
            id="opening an old file anew empties it, if it is not empty",
        ),
        pytest.param(
            """
            with open(directory + "/a.tmp", "w") as file:
                file.write("x" * 20_000)
                file.flush()
                os.fsync(file.fileno())
                file.write("y")
            os.replace(directory + "/a.tmp", directory + "/a")
            f = os.open(directory, os.O_RDONLY)
            os.fsync(f)
            """,
            [
                "create a.tmp",
                f"write a.tmp @0 {'x' * 40} (20000)",
                "sync a.tmp",
                "write a.tmp @20000 y",
                "rename a.tmp -> a",
                "sync .",
            ],
            id="a buffered file is written when Python does, and the directory is synced as one",
        ),
        pytest.param(
            """
            with open(directory + "/a", "w") as file:
                file.write("hello")
            shutil.copy(directory + "/a", directory + "/b")
            subprocess.run(["cp", "b", "c"], cwd=directory, check=True)
            subprocess.run(["cp", "--sparse=never", "/etc/hostname", "d"], cwd=directory, check=True)
            with open(directory + "/c") as source, open(directory + "/e", "wb") as to:
                to.write(b"12")
                to.flush()
                os.sendfile(to.fileno(), source.fileno(), 1, 3)
                os.sendfile(to.fileno(), source.fileno(), None, 2)
                os.copy_file_range(source.fileno(), to.fileno(), 9, None, 0)
                os.copy_file_range(source.fileno(), to.fileno(), 1, None, 0)
            os.unlink(directory + "/d")
            """,
            None,
            id="what the kernel copies, and what other programs copy",
        ),
        pytest.param(
            """
            f = os.open(directory + "/a", os.O_CREAT | os.O_RDWR)
            os.write(f, b"abcdef")
            g = os.open(directory + "/b", os.O_CREAT | os.O_WRONLY)
            os.sendfile(g, f, 1, 2)
            os.lseek(f, 4, os.SEEK_SET)
            os.sendfile(g, f, None, 1)
            os.copy_file_range(f, g, 9, None, 4)
            os.copy_file_range(f, g, 1, 0)
            """,
            [
                "create a",
                "write a @0 abcdef",
                "create b",
                "write b @0 bc",
                "write b @2 e",
                "write b @4 f",
                "write b @3 a",
            ],
            id="a copy has the bytes that its source has then, where both files stand or are told to",
        ),
        pytest.param(
            """
            os.symlink("checkpoints", "by-link")
            ---
            os.mkdir("by-link/a")
            """,
            ["mkdir a"],
            id="the directory may be reached through a link",
        ),
        pytest.param(
            """
            with tempfile.NamedTemporaryFile(delete=False, dir=os.getcwd()) as file:
                file.write(b"moved in")
            shutil.move(file.name, directory + "/a")
            with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
                with open(other + "/b", "wb") as file:
                    file.write(b"copied in")
                shutil.move(other + "/b", directory + "/b")
            """,
            [
                r"create .*/tmp\w+",
                r"write .*/tmp\w+ @0 moved in",
                r"rename .*/tmp\w+ -> a",
                "create b",
                "write b @0 copied in",
            ],
            id="a file from elsewhere is moved in; from another file system it is copied",
        ),
        pytest.param(
            """
            os.mkdir("stage")
            os.mkdir("stage/deep")
            with open("stage/deep/a", "w") as file:
                file.write("1")
            os.rename("stage", directory + "/step-1")
            os.fsync(os.open(".", os.O_RDONLY))
            os.fsync(os.open("..", os.O_RDONLY))
            with open(directory + "/step-1/deep/a", "a") as file:
                file.write("2")
            os.rename(directory + "/step-1", directory + "/final")
            with open(directory + "/final/deep/a", "a") as file:
                file.write("3")
            """,
            [
                "mkdir .*/stage",
                "mkdir .*/stage/deep",
                "create .*/stage/deep/a",
                "write .*/stage/deep/a @0 1",
                "rename .*/stage -> step-1",
                "sync /.*",
                "write step-1/deep/a @1 2",
                "rename step-1 -> final",
                "write final/deep/a @2 3",
            ],
            id="a whole directory is moved, with what is in it; where it comes from is synced",
        ),
        pytest.param(
            """
            d = os.open(directory, os.O_RDONLY)
            os.mkdir("s", dir_fd=d)
            s = os.open("s", os.O_RDONLY, dir_fd=d)
            os.close(os.open("a", os.O_CREAT | os.O_WRONLY, dir_fd=s))
            os.rename("a", "b", src_dir_fd=s, dst_dir_fd=d)
            os.link("b", "c", src_dir_fd=d, dst_dir_fd=s)
            os.symlink("../b", "l", dir_fd=s)
            os.rename(directory + "/s", directory + "/t")
            os.fsync(s)
            os.unlink("c", dir_fd=s)
            os.unlink("../t/./l", dir_fd=s)
            os.rmdir("t", dir_fd=d)
            """,
            [
                "mkdir s",
                "create s/a",
                "rename s/a -> b",
                "link s/c",
                "symlink s/l -> ../b",
                "rename s -> t",
                "sync t",
                "unlink t/c",
                "unlink t/l",
                "rmdir t",
            ],
            id="names are relative to directories that are open, and may be renamed meanwhile",
        ),
        pytest.param(
            """
            os.mkdir(directory + "/real")
            os.symlink("real", directory + "/way")
            os.symlink(directory + "/way/a", directory + "/last")
            os.chdir(directory + "/way")
            with open("../last", "w") as file:
                file.write("1")
            with open(directory + "/way/../real/a", "a") as file:
                file.write("2")
            os.rename(directory + "/way/a", directory + "/last")
            os.truncate(directory + "/last", 1)
            os.symlink("nowhere", directory + "/dangling")
            """,
            [
                "mkdir real",
                "symlink way -> real",
                "symlink last -> /.*/way/a",
                "create real/a",
                "write real/a @0 1",
                "write real/a @1 2",
                "rename real/a -> last over",
                "truncate last 1",
                "symlink dangling -> nowhere",
            ],
            id="links are followed, except where they are renamed",
        ),
        pytest.param(
            """
            f = os.open(directory, os.O_TMPFILE | os.O_WRONLY)
            os.write(f, b"hidden")
            os.link(f"/proc/self/fd/{f}", directory + "/a", src_dir_fd=f, follow_symlinks=True)
            f = os.open(directory, os.O_TMPFILE | os.O_WRONLY)
            os.write(f, b"never seen")
            """,
            [r"create .*", r"write .* @0 hidden", "link a"],
            id="a file without a name gets one, or is of no account",
        ),
        pytest.param(
            """
            f = os.open(directory + "/a", os.O_CREAT | os.O_WRONLY | os.O_SYNC)
            os.write(f, b"1")
            g = os.open(directory + "/b", os.O_CREAT | os.O_WRONLY | os.O_DSYNC)
            os.pwrite(g, b"2", 0)
            h = os.open(directory + "/c", os.O_CREAT | os.O_WRONLY)
            os.pwritev(h, [b"3"], 0, os.RWF_DSYNC)
            os.pwritev(h, [b"4"], 1, 0)
            os.fdatasync(h)
            """,
            [
                "create a",
                "write a @0 1",
                "sync a",
                "create b",
                "write b @0 2",
                "sync b",
                "create c",
                "write c @0 3",
                "sync c",
                "write c @1 4",
                "sync c",
            ],
            id="a write that does not return before it is durable is a write and a sync",
        ),
        pytest.param(
            f"""{LIBC}
            f = os.open(directory + "/a", os.O_CREAT | os.O_WRONLY)
            os.sync()
            libc.syncfs(f)
            libc.syncfs(os.open("/dev/shm", os.O_RDONLY))
            libc.sync_file_range(f, 0, 0, 7)
            """,
            ["create a", "sync_all", "sync_all"],
            id="everything is synced, or only another file system, which is of no account",
        ),
        pytest.param(
            f"""{LIBC}
            f = os.open(directory + "/a", os.O_CREAT | os.O_RDWR)
            os.posix_fallocate(f, 0, 8)
            os.pwrite(f, b"x" * 8, 0)
            libc.fallocate(f, 0, ctypes.c_long(2), ctypes.c_long(4))
            libc.fallocate(f, 1, ctypes.c_long(0), ctypes.c_long(100))
            libc.fallocate(f, 3, ctypes.c_long(2), ctypes.c_long(3))
            os.ftruncate(f, 6)
            os.ftruncate(f, 6)
            os.truncate(directory + "/a", 20)
            """,
            [
                "create a",
                "truncate a 8",
                "write a @0 xxxxxxxx",
                "write a @2 \0\0\0",
                "truncate a 6",
                "truncate a 20",
            ],
            id="files are made longer, shorter, and holes are cut into them",
        ),
        pytest.param(
            """
            os.mkdir(directory + "/a")
            f = os.open(directory + "/b", os.O_CREAT | os.O_RDONLY)
            failing = [
                lambda: os.mkdir(directory + "/a"),
                lambda: os.open(directory + "/b", os.O_CREAT | os.O_EXCL),
                lambda: os.rename(directory + "/b", directory + "/a"),
                lambda: os.rename(directory + "/b", directory + "/no/b"),
                lambda: os.unlink(directory + "/a"),
                lambda: os.rmdir(directory + "/b"),
                lambda: os.write(f, b"x"),
                lambda: os.ftruncate(f, 9),
                lambda: os.open(directory + "/no/file", os.O_CREAT),
            ]
            for call in failing:
                try:
                    call()
                except OSError:
                    continue
                raise AssertionError
            """,
            ["mkdir a", "create b"],
            id="calls that fail change nothing",
        ),
        pytest.param(
            """
            name = os.fsdecode(b"new\\nline \\xff \\xc3\\xa9 <1> (deleted)")
            with open(os.path.join(directory, name), "w") as file:
                os.unlink(file.name)
                file.write("still open")
                file.flush()
            os.mkdir(os.path.join(directory, name))
            """,
            [
                "create new\nline \udcff é <1> (deleted)",
                "unlink new\nline \udcff é <1> (deleted)",
                "write new\nline \udcff é <1> (deleted) @0 still open",
                "mkdir new\nline \udcff é <1> (deleted)",
            ],
            id="names of any bytes, and files that are written after they were removed",
        ),
    ],
)
def test_the_operations_of_a_save(tmp_path: Path, body: str, operations: list[str] | None) -> None:
    check_operations(recording_of(tmp_path, body), operations)
