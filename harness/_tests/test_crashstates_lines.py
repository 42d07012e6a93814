"""The line of the user's that a system call belongs to: the last one said before it, in its thread."""

from __future__ import annotations

import os
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.crashstates.ranks import lines
from harness.crashstates.ranks.markers import Speaker, lines_said
from harness.crashstates.record.running import Lines, marker
from harness.crashstates.record.strace import Call, Fd


class Listener(Speaker):
    """Keeps what is said, as strace would have seen it, and each ``call()`` of the script, as one of the kernel."""

    def __init__(self) -> None:
        self.said: list[Call] = []
        self.made: list[Call] = []

    def say(self, word: str, value: object) -> None:
        data = f"chaos-mark {word} {value}".encode()
        self.said.append(self._call("write", Fd(9, "/dev/null"), data))

    def call(self, *_: Any) -> Listener:
        self.made.append(self._call("fsync"))
        return self

    @staticmethod
    def _call(name: str, *arguments: Fd | bytes) -> Call:
        time_us = time.time_ns() // 1000
        while time.time_ns() // 1000 == time_us:
            pass  # as long as strace takes at the least
        return Call(threading.get_native_id(), time_us / 1e6, name, arguments, result=0)

    @property
    def calls(self) -> list[str]:
        """The line of each call, in the order in which they were made."""
        lines = Lines(self.said, {})
        return [(lines.of(call) or "nowhere").rpartition("/")[2] for call in self.made]

    @property
    def threads(self) -> list[str]:
        return [mark.value for call in self.said if (mark := marker(call)) is not None and mark.word == "threads"]

    @property
    def num_lines(self) -> int:
        """How many lines were said, at once or together."""
        marks = [mark for call in self.said if (mark := marker(call)) is not None]
        return sum(mark.word == "at" for mark in marks) + sum(
            len(list(lines_said(mark.value))) for mark in marks if mark.word == "lines"
        )


Run = Callable[[str], Listener]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(lines, "is_users", lambda filename: filename.startswith(str(tmp_path)))  # else call() is, too

    def run(text: str) -> Listener:
        script = tmp_path / "users.py"
        script.write_text(textwrap.dedent(text))
        listener = Listener()
        namespace = {"call": listener.call}
        exec(compile(script.read_text(), str(script), "exec"), namespace)
        with lines.said(listener):
            namespace["save"]()
        return listener

    return run


SCRIPTS = {
    "the line itself": ("def save():\n  call()\n  x = 1\n  call()\n", [2, 4]),
    "a line of a function": ("def f():\n  call()\ndef save():\n  f()\n", [2]),
    "the calling line, after a function has returned": ("def f():\n  return 1\ndef save():\n  call(f())\n", [4]),
    "the calling line, after one of several": ("def f():\n  call()\ndef save():\n  f(), call(), f()\n", [2, 4, 2]),
    "the same line again in a loop": ("def save():\n  for _ in 'ab':\n    call()\n    x = 1\n", [3, 3]),
    "what a library does counts for its caller": ("import json\ndef save():\n  json.loads('1', parse_int=call)\n", [3]),
    "what a library calls back is a line of its own": (
        "import json\ndef f(x):\n  call()\n  call()\ndef save():\n  json.loads('[1,2]', parse_int=f)\n  call()\n",
        [3, 4, 3, 4, 7],
    ),
    "after a call back, the line that called the library": (
        "import functools\ndef f(a, b):\n  return b\ndef save():\n  functools.reduce(f, [call, call]), call()\n",
        [5],
    ),
    "an except clause": ("def save():\n  try:\n    1 / 0\n  except ZeroDivisionError:\n    call()\n", [5]),
    "a with statement's end": (
        "class C:\n  def __enter__(s): pass\n  def __exit__(s, *a): call()\ndef save():\n  with C():\n    x = 1\n",
        [3],
    ),
    "a generator": ("def g():\n  call()\n  yield 1\n  call()\ndef save():\n  for _ in g():\n    call()\n", [2, 7, 4]),
    "a thread": (
        "import threading as t\ndef f():\n  call()\ndef save():\n  x = t.Timer(0, f)\n  x.start(); x.join()\n",
        [3],
    ),
}


def test_each_new_thread_says_which_it_is_once(run: Run) -> None:
    listener = run(
        "import threading as t\ndef f():\n  call(started.append(t.get_native_id()))\nstarted = []\ndef save():\n"
        "  x = [t.Thread(target=f) for _ in '12']\n  [y.start() for y in x], [y.join() for y in x]\n"
        "  call.__self__.started = started\n"
    )
    assert sorted(listener.threads) == sorted(map(str, listener.started))  # type: ignore[attr-defined]
    assert len(listener.threads) == 2


@pytest.mark.parametrize(("text", "expected"), SCRIPTS.values(), ids=SCRIPTS)
def test_is_said(run: Run, text: str, expected: list[int]) -> None:
    assert run(text).calls == [f"users.py:{line}" for line in expected]


def test_a_line_is_said_once_while_it_runs(run: Run) -> None:
    assert run("def save():\n  [call() for _ in range(50)]\n").num_lines <= 4


def test_nothing_is_said_afterwards(run: Run) -> None:
    listener = run("def save():\n  call()\n")
    num_said = len(listener.said)
    exec(compile("x = 1\ny = 2\n", "users.py", "exec"), {})
    assert len(listener.said) == num_said


def test_past_the_limit_no_line_is_told_rather_than_a_wrong_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINES", 5)
    listener = run("def save():\n  call()\n  for _ in range(9):\n    x = 1\n    y = 2\n  call()\n")
    assert listener.calls == ["users.py:2", "nowhere"]
    assert listener.num_lines == 5


def test_the_thread_that_saves_says_its_lines_together(run: Run) -> None:
    listener = run("def save():\n  for _ in range(50):\n    x = 1\n    call()\n")
    assert listener.calls == ["users.py:4"] * 50
    assert len(listener.said) == 1


STARTS = {
    "a thread": "x = t.Thread(target=f)\n  x.start()\n  x.join()",
    "a forked process": "x = os.fork()\n  x or f() or os._exit(0)\n  os.waitpid(x, 0)",
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_what_may_go_on_after_the_save_says_each_line_at_once(run: Run, start: str) -> None:
    """Nobody asks it for what it has noted."""
    read_fd, write_fd = os.pipe()
    run(
        "import os, threading as t\ndef f():\n  x = 1\n  os.write(pipe, b'%d' % call.__self__.num_lines)\n"
        f"pipe = {write_fd}\ndef save():\n  y = 1\n  {start}\n"
    )
    os.close(write_fd)
    with os.fdopen(read_fd) as pipe:
        assert int(pipe.read()) >= 2


@pytest.mark.parametrize(
    ("filename", "expected"),
    [
        (__file__, True),
        (threading.__file__, False),
        (pytest.__file__, False),
        ("<string>", False),
        ("<frozen importlib._bootstrap>", False),
    ],
)
def test_the_users_files(filename: str, expected: bool) -> None:
    assert lines.is_users(filename) is expected
