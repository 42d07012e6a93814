"""The lines of a strace log (``-f -ttt -yy -xx``) as system calls.

With -xx every string and path is hexadecimal, so that quotes and brackets in the log are strace's own.
"""

from __future__ import annotations

import re
from binascii import unhexlify
from dataclasses import dataclass
from functools import lru_cache

from harness.errors import RecordError

_HEAD = re.compile(r"(\d+) +(\d+\.\d+) (.*)", re.DOTALL)
_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_RESUMED = re.compile(r"<\.\.\. (?:resuming interrupted )?\w+(?: resumed>| \.\.\.>)")
_RESULT = re.compile(r"(\?|0x[0-9a-f]+|-?\d+)(?: ([A-Z][A-Z0-9_]*)\b)?")
_DESCRIPTOR = re.compile(r"(AT_FDCWD|-?\d+)<((?:[^<>-]++|->|-|<[^<>]*>)*+)>(\(deleted\))?")
_NUMBER = re.compile(r"(?:0x[0-9a-f]+|-?\d+)(?=[,)\]} ]|$)")
_SPACE = re.compile(r"(?: |/\*.*?\*/)*")
_KEY = re.compile(r"([a-z_][a-z0-9_]*)=(?!=)")
_BRACKET = re.compile(r'"[^"]*"|[(\[{]|[)\]},]')
_HEX = re.compile(r"(?:\\x[0-9a-f]{2})+")
_SUPERSEDED = re.compile(r"\+\+\+ superseded by execve in pid (\d+) \+\+\+")
_UNFINISHED = " <unfinished ...>"
_PID_CHANGED = re.compile(r" <pid changed to \d+ \.\.\.>")  # by a thread's execve; that it is superseded comes next
_DETACHED = "<detached ...>"
_RECEIVING = frozenset({"read", "pread64", "recvfrom"})  # their buffers are large, and nobody asks what was in them
_AT_FDCWD = -100
_SHORT = 2000  # characters: longer lines hold data, and are not kept


class Truncated(bytes):
    """The beginning of a string that was longer than the log keeps (``-s``)."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Fd:
    """A file descriptor, and what strace saw behind it.

    Attributes:
        number: -100 is the working directory (AT_FDCWD).
        path: of a file or directory; of others strace's name, such as ``pipe:[7]``, ``TCP:[a:1->b:2]`` or
            ``UNIX-STREAM:[7->8]``.
        deleted: it has no name any more.
    """

    number: int
    path: str
    deleted: bool = False


# int: a number. bytes: a string, or a path. str: flags, and whatever else strace has in words. list: ``[a, b]``.
# dict: ``{k=v}``, or one argument that has a name. None: NULL, or a buffer that was read into.
Value = int | str | bytes | Fd | list["Value"] | dict[str, "Value"] | None


@dataclass(frozen=True, slots=True)
class Call:
    """A system call that has ended.

    Attributes:
        tid: of the thread.
        t_s: when it began, in seconds since the epoch.
        result: what it returned; None if it did not, or is to be restarted, and so did nothing.
        error: such as ``ENOENT``; None: it went well.
        fd: the file descriptor that it returned, if strace could see one.
        injected: strace played the result, and the kernel never saw the call.
        delayed: strace held it up.
        began: line of the log, from 0.
        ended: line of the log; two calls whose lines interleave ran at the same time.
    """

    tid: int
    t_s: float
    name: str
    arguments: tuple[Value, ...]
    result: int | None
    error: str | None = None
    fd: Fd | None = None
    injected: bool = False
    delayed: bool = False
    began: int = 0
    ended: int = 0

    @property
    def is_done(self) -> bool:
        """Whether the kernel did what was asked."""
        return self.error is None and self.result is not None and self.result >= 0 and not self.injected


class Log:
    """A log that is read while it grows.

    Attributes:
        ends: thread id -> how it ended: ``exited with 1``, ``killed by SIGKILL``.
    """

    def __init__(self) -> None:
        self.ends: dict[int, str] = {}
        self._rest: list[str] = []  # of a line that is not complete yet
        self._line = 0
        self._unfinished: dict[int, tuple[float, str, int]] = {}

    def feed(self, text: str) -> list[Call]:
        """The calls that ended in ``text``, the log's next part, in the order in which they ended.

        Raises:
            RecordError: a line is not of strace's making.
        """
        *lines, rest = text.split("\n")
        if lines:
            lines[0] = "".join(self._rest) + lines[0]
            self._rest = []
        if rest:
            self._rest.append(rest)
        calls = []
        for line in lines:
            try:
                call = self._read(line)
            except (ValueError, LookupError) as error:
                where = f"line {self._line + 1} of the strace log"
                shown = line if len(line) <= 300 else f"{line[:300]} ... ({len(line)} characters)"
                raise RecordError(f"{where} cannot be read ({error}): {shown}") from error
            if call:
                calls.append(call)
            self._line += 1
        return calls

    def _read(self, line: str) -> Call | None:
        head = _HEAD.fullmatch(line)
        if head is None:
            raise ValueError("no thread, time and call")
        tid, t_s, text, began = int(head[1]), float(head[2]), head[3], self._line
        if superseded := _SUPERSEDED.fullmatch(text):  # a thread called execve, and is the whole process from now on
            self._unfinished[tid] = self._unfinished.pop(int(superseded[1]))
            return None
        if text.startswith("+++ "):
            self.ends[tid] = text.strip("+ ")
            self._unfinished.pop(tid, None)
            return None
        if text.startswith("--- "):
            return None  # a signal
        if text.startswith("<... ") and (resumed := _RESUMED.match(text)):
            t_s, first, began = self._unfinished.pop(tid)
            text = first + text[resumed.end() :]
        if text.endswith(_UNFINISHED):
            self._unfinished[tid] = t_s, text.removesuffix(_UNFINISHED), began
            return None
        if text.endswith(" ...>") and (changed := _PID_CHANGED.search(text)):
            self._unfinished[tid] = t_s, text[: changed.start()], began
            return None
        if text.endswith(_DETACHED) or text.startswith(_KILLED_BEFORE):
            return None
        read = _parts_again if len(text) < _SHORT else _parts
        return Call(tid, t_s, *read(text), began=began, ended=self._line)


_KILLED_BEFORE = "???("  # the thread was killed before strace could see which call it was about to make
_Parts = tuple[str, tuple[Value, ...], int | None, str | None, Fd | None, bool, bool]


def _parts(text: str) -> _Parts:
    """What a line says but for thread and time, as Call has it."""
    name = _NAME.match(text)
    equals = text.rindex(" = ")
    close = text.rindex(")", 0, equals)
    if name is None or text[name.end()] != "(" or text[close + 1 : equals].strip():
        raise ValueError("no call")
    arguments = text[name.end() + 1 : close].removesuffix(_UNFINISHED)  # it died in the middle of it
    outcome = text[equals + 3 :]
    result = _RESULT.match(outcome)
    if result is None:
        raise ValueError("no result")
    fd = _DESCRIPTOR.match(outcome)
    return (
        name[0],
        _Reader(arguments, keeps_strings=name[0] not in _RECEIVING).arguments(),
        None if result[1] == "?" else int(result[1], 0),
        result[2],
        _fd(fd) if fd else None,
        "(INJECTED" in outcome,
        "(DELAYED" in outcome,
    )


_parts_again = lru_cache(16_384)(_parts)  # loads make the same calls again and again; nobody changes a call's arguments


def _unhex(text: str) -> bytes:
    """The bytes behind ``\\x61\\x62``. Slices, since data comes by the hundreds of megabytes."""
    raw = text.encode()
    size_bytes = len(raw) // 4
    if raw[::4] != b"\\" * size_bytes or raw[1::4] != b"x" * size_bytes:
        raise ValueError("a string is not hexadecimal")
    digits = bytearray(2 * size_bytes)
    digits[::2], digits[1::2] = raw[2::4], raw[3::4]
    return unhexlify(digits)


def _fd(match: re.Match[str]) -> Fd:
    return _fd_of(*match.groups())


@lru_cache(4096)  # the same few, again and again
def _fd_of(number: str, seen: str, deleted: str | None) -> Fd:
    path = _HEX.match(seen)  # a device has its number behind its path
    return Fd(
        _AT_FDCWD if number == "AT_FDCWD" else int(number),
        _unhex(path[0]).decode(errors="surrogateescape") if path else seen,
        deleted is not None,
    )


class _Reader:
    """Reads the arguments of a call from left to right."""

    __slots__ = ("_at", "_keeps_strings", "_text")

    def __init__(self, text: str, *, keeps_strings: bool) -> None:
        self._text = text
        self._at = 0
        self._keeps_strings = keeps_strings

    def arguments(self) -> tuple[Value, ...]:
        if self._text.startswith("<... "):
            return ()  # of a call that had begun before strace came, nothing is known
        return tuple(self._items(""))

    def _items(self, closing: str) -> list[Value]:
        """All items up to the ``closing`` bracket, which is passed over; all the rest for ``""``."""
        items: list[Value] = []
        while True:
            self._skip_space()
            if self._at == len(self._text) or self._text[self._at] == closing:
                break
            if key := _KEY.match(self._text, self._at):
                self._at = key.end()
                items.append({key[1]: self._value()})
            else:
                items.append(self._value())
            if self._text.startswith(",", self._at):
                self._at += 1
        if closing and self._at == len(self._text):
            raise ValueError(f"no {closing}")
        self._at += len(closing)
        return items

    def _value(self) -> Value:
        self._skip_space()
        start = self._at
        value = self._simple()
        self._skip_space()
        if self._at < len(self._text) and self._text[self._at] not in ",)]}":
            if self._text.startswith("=> ", self._at):  # as the kernel changed it; what was asked is told
                self._at += 3
                self._value()
                return value
            self._at = start
            return self._words()
        return value

    def _simple(self) -> Value:
        text, start = self._text, self._at
        first = text[start : start + 1]
        if first == '"':
            return self._string()
        if first == "[":
            self._at += 1
            return self._items("]")
        if first == "{":
            self._at += 1
            merged: dict[str, Value] = {}
            for item in self._items("}"):
                merged.update(item if isinstance(item, dict) else {})
            return merged
        if fd := _DESCRIPTOR.match(text, start):
            self._at = fd.end()
            return _fd(fd)
        if number := _NUMBER.match(text, start):
            self._at = number.end()
            digits = number[0]
            is_octal = len(digits) > 1 and digits[0] == "0" and digits[1] != "x"
            return int(digits, 8 if is_octal else 0)
        words = self._words()
        return None if words == "NULL" else words

    def _string(self) -> bytes | None:
        end = self._text.index('"', self._at + 1)
        data = _unhex(self._text[self._at + 1 : end]) if self._keeps_strings else None
        self._at = end + 1
        if self._text.startswith("...", self._at):
            self._at += 3
            return None if data is None else Truncated(data)
        return data

    def _words(self) -> str:
        """Whatever stands up to the next comma or bracket that is not inside of other brackets."""
        start, depth = self._at, 0
        for bracket in _BRACKET.finditer(self._text, start):
            self._at = bracket.start()
            match bracket[0][0]:
                case '"':
                    continue
                case "(" | "[" | "{":
                    depth += 1
                case _ if depth == 0:
                    break
                case ",":
                    continue
                case _:
                    depth -= 1
        else:
            self._at = len(self._text)
        return self._text[start : self._at].rstrip()

    def _skip_space(self) -> None:
        if self._text.startswith((" ", "/"), self._at) and (space := _SPACE.match(self._text, self._at)):
            self._at = space.end()
