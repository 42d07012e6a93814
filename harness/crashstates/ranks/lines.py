"""Says which line of the user's code is running, so that each system call of a save has one; in the rank that saves."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from harness.crashstates.ranks.markers import Speaker

MAX_LINES = 50_000  # a save
_LIBRARY = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_OURS = f"{Path(__file__).parent}/"  # what is wrapped around the user's calls


def is_users(filename: str) -> bool:
    """Whether it is not the standard library's, an installed package's, made up (``<string>``), or a rank's of ours."""
    return not filename.startswith((*_LIBRARY, _OURS, "<"))


def users_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's code."""
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


class _LineTracer:
    """Says FILE:LINE whenever the running line has changed, in any thread; past MAX_LINES once that none is known.

    A marker is a system call, which costs some 50 us where it is traced. The thread that saves therefore notes its
    lines with the time, and says them all in one marker; threads that it starts, and processes that it forks, may go
    on when nobody asks them any more, and say each line at once.

    Frames of libraries are not traced, so what they do counts for the line that called them; when a function of the
    user's returns, the rest of the calling line is said again.
    """

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
        self._users: dict[CodeType, bool] = {}
        self._last = threading.local()
        self._started_in = threading.get_ident()
        self._left = MAX_LINES
        self._noted: list[tuple[int, CodeType | None, int]] = []
        self._is_noting = True

    def end(self) -> None:
        """Say what was noted."""
        if self._noted:
            self._speaker.say_lines([(time_us, _line(code, number)) for time_us, code, number in self._noted])
            self._noted = []

    def be_forked(self) -> None:
        self._is_noting = False
        self._noted = []

    def on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not hasattr(self._last, "place"):
            self._last.place = None
            if threading.get_ident() != self._started_in:
                self._speaker.say("threads", threading.get_native_id())
        code = frame.f_code
        users = self._users.get(code)
        if users is None:
            users = self._users[code] = is_users(code.co_filename)
        return self._on_line if users else None

    def _on_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self._say(frame)
        elif event == "return":
            caller = users_frame(frame.f_back)
            if caller is not None:
                self._say(caller)
        return self._on_line

    def _say(self, frame: FrameType) -> None:
        place = (frame.f_code, frame.f_lineno)
        if self._last.place == place or self._left <= 0:
            return
        self._last.place = place
        self._left -= 1
        code = frame.f_code if self._left else None
        if self._is_noting and threading.get_ident() == self._started_in:
            self._noted.append((time.time_ns() // 1000, code, frame.f_lineno))
        else:
            self._speaker.say("at", _line(code, frame.f_lineno))


def _line(code: CodeType | None, number: int) -> str:
    return f"{code.co_filename}:{number}" if code is not None else ""


@contextmanager
def said(speaker: Speaker) -> Iterator[None]:
    """While this lasts, the user's lines are said, in this thread and those started meanwhile."""
    tracer = _LineTracer(speaker)
    os.register_at_fork(after_in_child=tracer.be_forked)
    before, threads_before = sys.gettrace(), threading.gettrace()
    threading.settrace(tracer.on_call)
    sys.settrace(tracer.on_call)
    try:
        yield
    finally:
        sys.settrace(before)
        threading.settrace(threads_before)
        tracer.end()
