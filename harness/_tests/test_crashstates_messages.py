"""Real ranks that send each other messages: what each of their operations certainly came after."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness._tests.recorded_savers import knows, recording_of
from harness.crashstates.operation import Kind
from harness.crashstates.record.tracing import why_unavailable

trouble = why_unavailable()
pytestmark = pytest.mark.skipif(trouble is not None, reason=str(trouble))


def test_each_step_is_marked_and_knows_the_steps_before_on_all_ranks(tmp_path: Path) -> None:
    body = 'os.mkdir(f"{directory}/{step}-{rank}")'
    recording = recording_of(tmp_path, body, ranks=2, steps=(1, 2, 7))
    assert recording.problems == ()
    assert recording.steps == (1, 2, 7)
    for rank in (0, 1):
        own = [op for op in recording.operations if op.rank == rank]
        assert [op.step for op in own if op.kind is Kind.BEGIN] == [1, 2, 7]
        assert [op.kind for op in own] == [Kind.BEGIN, Kind.MKDIR, Kind.ACK] * 3
        assert [op.known[rank] for op in own] == list(range(9))
        # within a step it knows nothing of the other, and at its beginning all of the step before
        assert [op.known[1 - rank] for op in own] == [0, 0, 0, 3, 3, 3, 6, 6, 6]


SEND_AND_RECEIVE = """
    mark = lambda name: os.mkdir(f"{{directory}}/{{rank}}{{name}}")
    if rank == 0:
        mark("before")
        {send}
        mark("after")
    else:
        mark("before")
        {receive}
        mark("after")
"""
TCP = """
import time
def connected(directory, family, host):
    if rank == 0:
        server = socket.create_server((host, 0), family=family)
        os.write(peer, b"%5d" % server.getsockname()[1])
        return server.accept()[0]
    port = int(os.read(peer, 5))
    return socket.create_connection((host, port))
pair = socket.socket(fileno=peer)
---
"""


@pytest.mark.parametrize(
    ("send", "receive"),
    [
        pytest.param("os.write(peer, b'x')", "os.read(peer, 9)", id="over a socket pair by write and read"),
        pytest.param("pair.send(b'x')", "pair.recv(9)", id="by send and recv"),
        pytest.param("pair.sendmsg([b'x', b'y'])", "pair.recvmsg(9)", id="by sendmsg and recvmsg"),
        pytest.param("os.writev(peer, [b'x'])", "os.readv(peer, [bytearray(3)])", id="by writev and readv"),
        pytest.param(
            "os.sendfile(peer, os.open('/etc/passwd', os.O_RDONLY), 0, 9)", "os.read(peer, 99)", id="by sendfile"
        ),
        pytest.param(
            "connected(directory, socket.AF_INET, '127.0.0.1').sendall(b'x')",
            "connected(directory, socket.AF_INET, '127.0.0.1').recv(9)",
            id="over TCP",
        ),
        pytest.param(
            "connected(directory, socket.AF_INET6, '::1').sendall(b'x')",
            "connected(directory, socket.AF_INET6, '::1').recv(9)",
            id="over TCP on IPv6",
        ),
        pytest.param("subprocess.run(['echo', 'x'], stdout=peer, check=True)", "os.read(peer, 9)", id="by a child"),
        pytest.param("os.write(peer, b'x')", "pair.recv(9, socket.MSG_PEEK)\n        os.read(peer, 9)", id="peeking"),
    ],
)
def test_who_has_received_a_message_knows_what_went_before_it(tmp_path: Path, send: str, receive: str) -> None:
    recording = recording_of(tmp_path, TCP + SEND_AND_RECEIVE.format(send=send, receive=receive), ranks=2)
    assert recording.problems == ()
    assert knows(recording, "1after", "0before")
    assert not knows(recording, "1before", "0before")
    assert not knows(recording, "1after", "0after")
    assert not knows(recording, "0after", "1before")


READ_AHEAD = """
    import _thread, threading, torch.distributed
    from harness.crashstates.ranks import lines, meetings
    ---
    read = []
    if rank == 0:
        os.mkdir(directory + "/sent")
        os.write(peer, b"x")
    else:
        with lines.said(say.__self__), meetings.said(say.__self__):
            {start}
            while not read:
                pass
            os.mkdir(directory + "/ahead")
            {meet}
            os.mkdir(directory + "/after")
    """


@pytest.mark.parametrize(
    ("start", "meet", "is_known_ahead", "is_known_after"),
    [
        # Python's threading does not know this one, as it does not know those of C++.
        pytest.param(
            "_thread.start_new_thread(lambda: read.append(os.read(peer, 1)), ())",
            "future = torch.futures.Future(); future.set_result(1); future.done()",
            *(False, True),
            id="a thread of C++ has read ahead, and the script comes back from a wait later",
        ),
        pytest.param(
            "_thread.start_new_thread(lambda: read.append(os.read(peer, 1)), ())",
            "pass",
            *(False, False),
            id="a thread of C++ has read ahead, and the script has not waited",
        ),
        pytest.param(
            "threading.Thread(target=lambda: read.append(os.read(peer, 1))).start()",
            "pass",
            *(True, True),
            id="a thread of Python has read",
        ),
    ],
)
def test_what_a_thread_has_read_ahead_the_script_knows_once_it_has_waited(
    tmp_path: Path, start: str, meet: str, is_known_ahead: bool, is_known_after: bool
) -> None:
    recording = recording_of(tmp_path, READ_AHEAD.format(start=start, meet=meet), ranks=2)
    assert recording.problems == ()
    assert knows(recording, "ahead", "sent") == is_known_ahead
    assert knows(recording, "after", "sent") == is_known_after


def test_a_message_is_known_by_its_last_byte(tmp_path: Path) -> None:
    body = """
    pair = socket.socket(fileno=peer)
    ---
    if rank == 0:
        for number in range(3):
            os.mkdir(f"{directory}/sent-{number}")
            os.write(peer, b"12345")
        os.read(peer, 1)
    else:
        for number, size in enumerate([5, 1, 5, 3, 1]):
            pair.recv(size, socket.MSG_PEEK)  # takes nothing out
            got = b""
            while len(got) < size:
                got += os.read(peer, size - len(got))
            os.mkdir(f"{directory}/got-{number}")
        os.write(peer, b"!")
    """
    recording = recording_of(tmp_path, body, ranks=2)
    known = [[knows(recording, f"got-{got}", f"sent-{sent}") for sent in range(3)] for got in range(5)]
    assert known == [
        [True, False, False],  # 5 bytes: the first message
        [True, True, False],  # 6
        [True, True, True],  # 11
        [True, True, True],
        [True, True, True],
    ]


def test_what_is_known_is_counted_in_operations_of_the_recording(tmp_path: Path) -> None:
    body = """
    if rank == 0:
        for _ in range(5):
            os.mkdir("elsewhere")
            os.rmdir("elsewhere")
        os.mkdir(directory + "/0")
        os.write(peer, b"x")
    else:
        os.read(peer, 1)
        os.mkdir(directory + "/1")
    """
    recording = recording_of(tmp_path, body, ranks=2)
    known = {op.path: op.known for op in recording.operations if op.kind is Kind.MKDIR}
    assert known == {"0": (1, 0), "1": (2, 1)}


def test_who_opens_a_file_knows_who_made_it_and_who_reads_it_knows_who_wrote_it(tmp_path: Path) -> None:
    body = """
    os.mkdir(f"{directory}/{rank}")
    if rank == 0:
        with open(directory + "/data", "w") as file:
            file.write("1")
            file.flush()
            os.mkdir(directory + "/0/written")
        os.read(peer, 1)
    else:
        import time
        while True:  # it looks; no message comes
            try:
                with open(directory + "/data", "rb", buffering=0) as file:
                    os.mkdir(directory + "/1/opened")
                    while not file.read():
                        pass
                break
            except FileNotFoundError:
                pass
        os.mkdir(directory + "/1/read")
        os.write(peer, b"x")
    """
    recording = recording_of(tmp_path, body, ranks=2)
    assert recording.problems == ()
    write = next(op for op in recording.operations if op.kind is Kind.WRITE)
    by_path = {op.path: op for op in recording.operations}
    assert by_path["1/opened"].known[0] >= by_path["data"].known[0]
    assert by_path["1/read"].known[0] > write.known[0]
    assert not knows(recording, "1/opened", "0/written") or by_path["1/opened"].index > by_path["0/written"].index
    assert by_path["1"].known[0] == 0


@pytest.mark.parametrize(
    "looks", ["os.path.exists(flag)", "os.access(flag, os.R_OK)", "os.path.islink(flag) or os.path.isfile(flag)"]
)
def test_who_finds_a_name_knows_who_made_it(tmp_path: Path, looks: str) -> None:
    body = f"""
    flag = directory + "/flag"
    if rank == 0:
        os.mkdir(directory + "/before")
        open(flag, "w").close()
        os.mkdir(directory + "/after")
    else:
        while not ({looks}):
            pass
        os.mkdir(directory + "/found")
    """
    recording = recording_of(tmp_path, body, ranks=2)
    assert recording.problems == ()
    assert knows(recording, "found", "before")
    assert not knows(recording, "found", "after")
