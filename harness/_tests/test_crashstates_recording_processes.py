"""Real programs that save, under a real strace: which process did it, with which open file, from which directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness._tests.recorded_savers import check_operations, recording_of
from harness.crashstates.record.tracing import why_unavailable

trouble = why_unavailable()
pytestmark = pytest.mark.skipif(trouble is not None, reason=str(trouble))


@pytest.mark.parametrize(
    ("body", "operations"),
    [
        pytest.param(
            """
            f = os.open(directory + "/a", os.O_CREAT | os.O_WRONLY)
            os.write(f, b"parent ")
            if os.fork() == 0:
                os.write(f, b"child ")
                os.close(f)
                g = os.open(directory + "/b", os.O_CREAT | os.O_WRONLY)
                assert g == f
                os.write(g, b"own")
                os._exit(0)
            os.wait()
            os.write(f, b"again")
            """,
            [
                "create a",
                "write a @0 parent ",
                "write a @7 child ",
                "create b",
                "write b @0 own",
                "write a @13 again",
            ],
            id="a child shares the open file and where it stands, but not the numbers",
        ),
        pytest.param(
            """
            with open(directory + "/a", "wb") as file:
                subprocess.run(["echo", "1"], stdout=file, check=True)
                file.write(b"2")
            subprocess.run(f"echo 3 >> {directory}/a; cd {directory}; echo 4 > b 5>&1", shell=True, check=True)
            """,
            ["create a", "write a @0 1\n", "write a @2 2", "write a @3 3\n", "create b", "write b @0 4\n"],
            id="programs write to the descriptors that they are given",
        ),
        pytest.param(
            """
            os.chdir(directory)
            subprocess.run("mkdir s; cd s; touch a; mkdir ../t", shell=True, check=True)
            os.mkdir("b")
            os.fchdir(os.open("s", os.O_RDONLY))
            os.mkdir("c")
            """,
            ["mkdir s", "create s/a", "mkdir t", "mkdir b", "mkdir s/c"],
            id="each process has a working directory of its own",
        ),
        pytest.param(
            """
            f = os.open(directory + "/a", os.O_CREAT | os.O_WRONLY)
            g = os.dup(f)
            os.close(f)
            h = os.open(directory + "/b", os.O_CREAT | os.O_WRONLY)
            assert h == f
            os.write(g, b"A")
            os.write(h, b"B")
            os.dup2(g, h)
            os.write(h, b"a")
            import fcntl
            i = fcntl.fcntl(g, fcntl.F_DUPFD, 50)
            os.write(i, b"!")
            os.closerange(40, 60)
            """,
            ["create a", "create b", "write a @0 A", "write b @0 B", "write a @1 a", "write a @2 !"],
            id="numbers of descriptors are used again",
        ),
        pytest.param(
            """
            import sys
            f = os.open(directory + "/a", os.O_CREAT | os.O_WRONLY)
            os.write(f, b"1")
            write = "import os\\nfor _ in range(20): os.write(os.memfd_create('m'), b'not in a')"
            subprocess.run([sys.executable, "-ISc", write], close_fds=False, check=True)
            """,
            ["create a", "write a @0 1"],
            id="execve closes what is to be closed, and the numbers become others",
        ),
        pytest.param(
            """
            def write(name):
                f = os.open(directory + "/" + name, os.O_CREAT | os.O_WRONLY)
                for _ in range(50):
                    os.write(f, name.encode())
                os.close(f)
            threads = [threading.Thread(target=write, args=[name]) for name in "abcd"]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            """,
            None,
            id="threads write at the same time",
        ),
        pytest.param(
            """
            import sys
            sys.path.insert(0, os.getcwd())
            with open("freshly_made.py", "w") as file:
                file.write("x = 1")
            import freshly_made
            os.unlink("freshly_made.py")
            with open("scratch", "w") as file:
                file.write("x")
            os.unlink("scratch")
            os.mkdir(directory + "/a")
            print("to stdout", file=sys.stderr)
            """,
            ["mkdir a"],
            id="what has nothing to do with the checkpoint is left out, Python's caches as well",
        ),
    ],
)
def test_the_operations_of_a_save(tmp_path: Path, body: str, operations: list[str] | None) -> None:
    check_operations(recording_of(tmp_path, body), operations)
