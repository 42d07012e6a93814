"""Ranks that save under strace, without the harness's own host: each runs a few lines of Python."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path

from harness.crashstates.operation import Kind, Operation, Recording
from harness.crashstates.record.recording import Origin, recorded
from harness.crashstates.record.strace import Call
from harness.crashstates.record.tracing import STRING_LIMIT_BYTES, WRITING, attach

_RANK = """
import os, sys
from harness.crashstates.ranks.markers import Speaker
from harness.crashstates.record.tracing import allow_tracing
allow_tracing()
speaker = Speaker()
file, directory, rank, peer = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
scope = {"rank": rank, "peer": peer, "say": speaker.say}
exec(compile(open(file).read(), file, "exec"), scope)
print("ready", flush=True)
for line in sys.stdin:
    speaker.say("begin", int(line))
    scope["save"](directory, int(line))
    speaker.say("ack", int(line))
    print("done", flush=True)
"""


def calls_of(scratch: Path, body: str, *, ranks: int = 1, steps: Sequence[int] = (1,)) -> tuple[list[Call], Origin]:
    """What ``ranks`` processes (two have a socket to each other, ``peer``) do while they save with ``body``.

    ``body`` is the body of ``save(directory, step)``, with os, socket, ``rank``, ``peer`` and ``say`` at hand; what
    stands before a line ``---`` in it is run before the recording begins.
    """
    before, _, inside = textwrap.dedent(body).rpartition("---\n")
    root = scratch / "checkpoints"
    root.mkdir()
    file = scratch / "saver.py"
    file.write_text(
        "import os, shutil, socket, subprocess, tempfile, threading\n"
        + textwrap.dedent(before)
        + "def save(directory, step):\n"
        + textwrap.indent(textwrap.dedent(inside), "    ")
    )
    with ExitStack() as stack:
        ends = socket.socketpair()
        processes = []
        for rank in range(ranks):
            peer = ends[rank % 2].fileno()
            command = [sys.executable, "-c", _RANK, str(file), str(root), str(rank), str(peer)]
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[peer], cwd=scratch
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            processes.append(process)
        for end in ends:
            end.close()  # so that a rank whose peer has died hears of it
        for process in processes:
            _answer(process, "ready")
        pids = [process.pid for process in processes]
        log_path = scratch / "strace.log"
        began_s = time.time()
        with attach(pids, log_path, calls=WRITING, string_limit_bytes=STRING_LIMIT_BYTES) as tracer:
            origin = Origin.of(pids, root, began_s)
            for step in steps:
                for process in processes:
                    assert process.stdin
                    process.stdin.write(f"{step}\n")
                    process.stdin.flush()
                for process in processes:
                    _answer(process, "done")
            tracer.detach()
            return tracer.new_calls(), origin


def _answer(process: subprocess.Popen[str], expected: str) -> None:
    assert process.stdout
    answer = process.stdout.readline().strip()
    assert answer == expected, f"a rank said {answer!r} instead of {expected!r}; its own words are above"


def recording_of(scratch: Path, body: str, *, ranks: int = 1, steps: Sequence[int] = (1,)) -> Recording:
    """The recording of ``calls_of``."""
    calls, origin = calls_of(scratch, body, ranks=ranks, steps=steps)
    return recorded(calls, origin, steps)


def in_words(op: Operation) -> str:
    """One operation in a few words, for comparison: kind, path and what else it has."""
    match op.kind.value:
        case "begin" | "ack":
            more = str(op.step)
        case "write":
            more = f"{op.path} @{op.offset} {op.data[:40].decode('latin-1')}" + f" ({len(op.data)})" * (
                len(op.data) > 40
            )
        case "truncate":
            more = f"{op.path} {op.size_bytes}"
        case "rename":
            more = f"{op.path} -> {op.to_name}" + " over" * (op.replaced is not None)
        case "symlink":
            more = f"{op.path} -> {op.text}"
        case _:
            more = op.path
    return f"{op.kind.value} {more}" if more else op.kind.value


def done(recording: Recording) -> list[str]:
    """What the saves did, without their beginnings and ends."""
    return [in_words(op) for op in recording.operations if op.kind not in (Kind.BEGIN, Kind.ACK)]


def unlike(found: Sequence[str], expected: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs of these that are neither equal nor match, the second being a regular expression."""
    pairs = zip_longest(found, expected, fillvalue="nothing")
    return [(words, wanted) for words, wanted in pairs if words != wanted and not re.fullmatch(wanted, words)]


def check_operations(recording: Recording, operations: Sequence[str] | None) -> None:
    """One save was recorded without problems, and did this; None: no matter what."""
    assert recording.problems == ()  # among others: the tree that they make is the one on the disk
    assert [op.kind for op in recording.operations[:: len(recording.operations) - 1]] == [Kind.BEGIN, Kind.ACK]
    if operations is not None:
        assert unlike(done(recording), operations) == []


def knows(recording: Recording, who: str, what: str) -> bool:
    """Whether the operation on path ``who`` has certainly happened after that on path ``what``."""
    by_path = {op.path: op for op in recording.operations}
    later, earlier = by_path[who], by_path[what]
    number = [op for op in recording.operations if op.rank == earlier.rank].index(earlier)
    return later.known[earlier.rank] > number
