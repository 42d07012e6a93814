"""What operations say beside what they do; and in which order calls count that ran at the same time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness._tests.recorded_savers import calls_of, done, knows, recording_of
from harness.crashstates.operation import ROOT, Kind
from harness.crashstates.record.recording import Origin, recorded
from harness.crashstates.record.strace import Log
from harness.crashstates.record.tracing import why_unavailable

trouble = why_unavailable()
pytestmark = pytest.mark.skipif(trouble is not None, reason=str(trouble))


def test_fields_of_operations(tmp_path: Path) -> None:
    recording = recording_of(
        tmp_path,
        """
        say("at", "saver.py:7")
        os.mkdir(directory + "/d")
        say("at", "saver.py:8")
        for step in (1, 2):
            f = os.open(directory + "/d/a", os.O_CREAT | os.O_WRONLY)
            os.fsync(f)
            os.rename(directory + "/d/a", directory + "/b")
        subprocess.run(["touch", directory + "/c"], check=True)
        say("at", "")
        os.sync()
        """,
    )
    begin, mkdir, create, sync, rename, create2, _, rename2, touch, sync_all, ack = recording.operations
    assert [op.index for op in recording.operations] == list(range(11))
    assert [op.known for op in recording.operations] == [(index,) for index in range(11)]
    times = [op.t_s for op in recording.operations]
    assert times == sorted(times)
    assert (begin.step, ack.step, begin.call, ack.call) == (1, 1, "save", "save")
    d, a, a2 = mkdir.object, create.object, create2.object
    assert len({ROOT, d, a, a2}) == 4
    assert recording.directories == {ROOT, d}
    assert (mkdir.directory, mkdir.name) == (ROOT, "d")
    assert (create.directory, create.name) == (d, "a")
    assert (sync.object, sync_all.object) == (a, -1)
    assert (rename.directory, rename.name, rename.to_directory, rename.to_name) == (d, "a", ROOT, "b")
    assert (rename.object, rename.replaced) == (a, None)
    assert (rename2.object, rename2.replaced) == (a2, a)
    assert mkdir.site == "saver.py:7"
    assert {op.site for op in (create, sync, rename, touch)} == {"saver.py:8"}  # touch: of whom started it
    assert {op.site for op in (begin, sync_all, ack)} == {None}
    assert [op.call for op in (mkdir, create, sync, rename)] == ["mkdir", "openat", "fsync", "rename"]


def test_torch_save_is_followed_into_its_own_threads_and_formats(tmp_path: Path) -> None:
    body = """
    import torch
    ---
    torch.save({"w": torch.arange(100_000)}, directory + "/a.pt")
    """
    recording = recording_of(tmp_path, body)
    assert recording.problems == ()
    written = sum(len(op.data) for op in recording.operations)
    assert written >= (tmp_path / "checkpoints/a.pt").stat().st_size > 800_000
    assert Kind.SYNC not in {op.kind for op in recording.operations}


def test_calls_whose_result_was_injected_did_nothing(tmp_path: Path) -> None:
    body = 'f = os.open(directory + "/a", os.O_CREAT | os.O_WRONLY); os.fsync(f)'
    calls, origin = calls_of(tmp_path, body)
    assert done(recorded(calls, origin, (1,))) == ["create a", "sync a"]
    lying = [replace(call, injected=call.name == "fsync") for call in calls]
    assert done(recorded(lying, origin, (1,))) == ["create a"]


def quoted(text: str) -> str:
    return '"' + "".join(f"\\x{byte:02x}" for byte in text.encode()) + '"'


def test_a_call_that_was_seen_to_return_late_is_followed_before_those_that_need_it(tmp_path: Path) -> None:
    """Two ranks at the same time: strace hears of the mkdir's end after a file was made in the directory."""
    root = tmp_path / "checkpoints"
    (root / "d").mkdir(parents=True)
    (root / "d/a").touch()
    mkdir, create, null = quoted(f"{root}/d"), quoted(f"{root}/d/a"), quoted("/dev/null")[1:-1]
    lines = [
        *(f"{pid} 10.1 write(9<{null}>, {quoted('chaos-mark begin 1')}, 18) = 18" for pid in (1, 2)),
        f"1 10.2 mkdir({mkdir}, 0777 <unfinished ...>",
        f"2 10.3 mkdir({mkdir}, 0777) = -1 EEXIST (File exists)",
        f"2 10.4 openat(AT_FDCWD<\\x2f>, {create}, O_WRONLY|O_CREAT, 0666) = 3<{create[1:-1]}>",
        "1 10.5 <... mkdir resumed>) = 0",
        *(f"{pid} 10.6 write(9<{null}>, {quoted('chaos-mark ack 1')}, 16) = 16" for pid in (1, 2)),
    ]
    origin = Origin(root, began_s=10.0, pids=(1, 2), threads={1: 1, 2: 2}, cwds={1: "/", 2: "/"})
    recording = recorded(Log().feed("\n".join(lines) + "\n"), origin, (1,))
    assert recording.problems == ()
    assert done(recording) == ["mkdir d", "create d/a"]
    assert knows(recording, "d/a", "d")  # it cannot have been made before the directory was


def test_a_file_whose_blocks_are_shared_has_the_other_s_bytes(tmp_path: Path) -> None:
    """cp tries it first; as few file systems can, its failure is told as a success here."""
    body = """
    with open(directory + "/a", "w") as file:
        file.write("hello")
    subprocess.run(["cp", "--reflink=auto", directory + "/a", directory + "/b"], check=True)
    """
    calls, origin = calls_of(tmp_path, body)
    cloned = [
        replace(call, result=0, error=None) if call.name == "ioctl" and "FICLONE" in str(call.arguments[1]) else call
        for call in calls
        if call.name not in ("copy_file_range", "sendfile")
    ]
    recording = recorded(cloned, origin, (1,))
    assert recording.problems == ()
    assert done(recording) == ["create a", "write a @0 hello", "create b", "write b @0 hello"]
