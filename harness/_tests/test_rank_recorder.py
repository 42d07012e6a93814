"""The record: every line that was written before the process ended is there, whole, whatever ended it."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from harness.rank.recorder import WINDOW_BYTES, Recorder
from harness.wire import Kind


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().rstrip(b"\0").splitlines()]


def record_in_process(path: Path, text: str, **limits: int) -> subprocess.CompletedProcess[str]:
    """Run lines that use ``recorder`` in a process of their own; ``fsize`` limits the size of its files."""

    def limit() -> None:
        if "fsize" in limits:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limits["fsize"], limits["fsize"]))

    header = f"""
        import os, signal, sys
        from pathlib import Path
        from harness.rank.recorder import Recorder
        from harness.wire import Kind
        recorder = Recorder(Path({str(path)!r}))
    """
    script = textwrap.dedent(header) + textwrap.dedent(text)
    return subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, preexec_fn=limit)


@pytest.mark.parametrize("size_bytes", [10, 1000, WINDOW_BYTES - 200, WINDOW_BYTES, 3 * WINDOW_BYTES + 1])
def test_lines_of_any_size_are_there_in_order(tmp_path: Path, size_bytes: int) -> None:
    recorder = Recorder(tmp_path / "events.jsonl")
    for number in range(300):
        recorder.emit(Kind.COLLECTIVE, number=number, padding="x" * (size_bytes if number % 7 == 0 else 5))
    recorder.trim()
    found = lines(tmp_path / "events.jsonl")
    assert [event["number"] for event in found] == [*range(300)]
    assert {len(event["padding"]) for event in found} == {5, size_bytes}


def test_after_trimming_the_file_ends_with_the_last_line_and_recording_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    recorder = Recorder(path)
    for number in range(3):
        recorder.emit(Kind.COLLECTIVE, number=number)
        assert path.stat().st_size == WINDOW_BYTES
        recorder.trim()
        assert path.read_bytes().endswith(b"}\n")
    assert [event["number"] for event in lines(path)] == [0, 1, 2]


def test_a_killed_process_leaves_every_line_that_it_recorded(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    text = """
        for number in range(1000):
            recorder.enter("forward" if number % 2 else "backward", number)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert record_in_process(path, text).returncode == -signal.SIGKILL
    assert [event["step"] for event in lines(path)] == [*range(1000)]


def test_without_room_the_record_ends_and_training_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    text = """
        for number in range(2000):
            recorder.emit(Kind.COLLECTIVE, number=number, padding="x" * 50)
        recorder.trim()
        print("trained")
    """
    ran = record_in_process(path, text, fsize=WINDOW_BYTES + 10_000)
    assert ran.returncode == 0
    assert ran.stdout == "trained\n"
    assert ran.stderr.count("chaos: the record ends here, collective could not be written") == 1
    numbers = [event["number"] for event in lines(path)]
    assert numbers == [*range(len(numbers))]
    assert 300 < len(numbers) < 1000


def test_threads_and_signal_handlers_that_record_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    recorder = Recorder(path)
    handled = []

    def handle(_signal: int, _frame: object) -> None:
        handled.append("")
        recorder.emit(Kind.COLLECTIVE, thread="handler")

    def record(thread: str) -> None:
        for number in range(5000):
            recorder.emit(Kind.COLLECTIVE, thread=thread, number=number)

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    threads = [threading.Thread(target=record, args=(name,)) for name in ("a", "b", "c")]
    try:
        for thread in threads:
            thread.start()
        record("main")
        for thread in threads:
            thread.join()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    recorder.trim()
    found = lines(path)
    assert handled
    assert sum(event["thread"] == "handler" for event in found) == len(handled)
    for name in ("a", "b", "c", "main"):
        assert [event["number"] for event in found if event["thread"] == name] == [*range(5000)]


def test_a_forked_child_does_not_write_into_its_parents_record(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    recorder = Recorder(path)
    recorder.emit(Kind.COLLECTIVE, number=0)
    if (child := os.fork()) == 0:
        recorder.emit(Kind.COLLECTIVE, number=1)
        recorder.trim()
        os._exit(0)
    os.waitpid(child, 0)
    recorder.emit(Kind.COLLECTIVE, number=2)
    assert [event["number"] for event in lines(path)] == [0, 2]
