"""The line of the user's that a system call belongs to: the last one said before it, in its thread."""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.crashstates.ranks import lines
from harness.crashstates.ranks.markers import Speaker


class Listener(Speaker):
    """Keeps what is said, and where each ``call()`` of the script found it."""

    def __init__(self) -> None:
        self.last: dict[int, str] = {}
        self.num_said = 0
        self.calls: list[str] = []
        self.threads: list[object] = []

    def say(self, word: str, value: object) -> None:
        if word == "threads":
            self.threads.append(value)
            return
        assert word == "at"
        self.num_said += 1
        self.last[threading.get_ident()] = str(value)

    def call(self, *_: Any) -> Listener:
        self.calls.append(self.last.get(threading.get_ident(), "nowhere").rpartition("/")[2])
        return self


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
    assert sorted(listener.threads) == sorted(listener.started)  # type: ignore[attr-defined, type-var]
    assert len(listener.threads) == 2


@pytest.mark.parametrize(("text", "expected"), SCRIPTS.values(), ids=SCRIPTS)
def test_is_said(run: Run, text: str, expected: list[int]) -> None:
    assert run(text).calls == [f"users.py:{line}" for line in expected]


def test_a_line_is_said_once_while_it_runs(run: Run) -> None:
    assert run("def save():\n  [call() for _ in range(50)]\n").num_said <= 4


def test_nothing_is_said_afterwards(run: Run) -> None:
    listener = run("def save():\n  call()\n")
    num_said = listener.num_said
    exec(compile("x = 1\ny = 2\n", "users.py", "exec"), {})
    assert listener.num_said == num_said


def test_past_the_limit_no_line_is_told_rather_than_a_wrong_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINES", 5)
    listener = run("def save():\n  call()\n  for _ in range(9):\n    x = 1\n    y = 2\n  call()\n")
    assert listener.calls == ["users.py:2", ""]
    assert listener.num_said == 5


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
