"""On which line of a TOML text each value stands: ``tomllib`` parses, but does not say where.

The text must be one that ``tomllib`` accepts: this only follows its structure, and judges nothing.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Mapping

Path = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\n]*")
# Longest first: the three-quote strings may hold single quotes, and one or two more right before their end.
_STRING = re.compile(
    r'''
    """ (?: [^\\] | \\. )*? "{3,5} (?!")
    | '{3} .*? '{3,5} (?!')
    | " (?: [^"\\\n] | \\. )* "
    | ' [^'\n]* '
    ''',
    re.DOTALL | re.VERBOSE,
)


def locate(text: str) -> Mapping[Path, int]:
    """The line, from 1, of every table, array, array item and value: ``("fault", 0, "at", "step") -> 12``.

    A table that only the headers of its sub-tables imply has the line of the first of these.
    """
    return _Scanner(text).scan()


def line_of(lines: Mapping[Path, int], path: Path) -> int:
    """The line of ``path``, or of the innermost thing around it that is written down; else 1."""
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return 1


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._starts = [0, *(m.end() for m in re.finditer("\n", text))]
        self._lines: dict[Path, int] = {}
        self._num_items: dict[Path, int] = {}  # of the arrays of tables seen so far

    def scan(self) -> dict[Path, int]:
        table: Path = ()
        while self._skip_blank() < len(self._text):
            if self._take("[["):
                array = self._inside_arrays(self._keys())
                self._note(array)
                table = (*array, self._num_items.setdefault(array, 0))
                self._num_items[array] += 1
                self._note(table)
                self._take("]]")
            elif self._take("["):
                table = self._inside_arrays(self._keys())
                self._note(table)
                self._take("]")
            else:
                self._pair(table)
        return self._lines

    def _inside_arrays(self, keys: tuple[str, ...]) -> Path:
        """``keys`` of a header as a path: below an array of tables they speak of its latest item."""
        path: Path = ()
        for n, key in enumerate(keys):
            path = (*path, key)
            if n < len(keys) - 1 and path in self._num_items:
                path = (*path, self._num_items[path] - 1)
        return path

    def _pair(self, table: Path) -> None:
        self._skip_blank()
        line = self._line()
        path = (*table, *self._keys())
        for end in range(len(table) + 1, len(path) + 1):
            self._note(path[:end], line)
        self._take("=")
        self._value(path)

    def _value(self, path: Path) -> None:
        self._skip_blank()
        if self._take("["):
            item = 0
            while self._skip_blank() < len(self._text) and not self._take("]"):
                self._note((*path, item))
                self._value((*path, item))
                self._skip_blank()
                self._take(",")
                item += 1
        elif self._take("{"):
            while self._skip_blank() < len(self._text) and not self._take("}"):
                self._pair(path)
                self._skip_blank()
                self._take(",")
        elif string := _STRING.match(self._text, self._at):
            self._at = string.end()
        else:
            scalar = _SCALAR.match(self._text, self._at)
            self._at = scalar.end() if scalar else self._at

    def _keys(self) -> tuple[str, ...]:
        keys: list[str] = []
        while True:
            self._skip_blank()
            if string := _STRING.match(self._text, self._at):
                self._at = string.end()
                keys.append(_unquoted(string.group()))
            elif bare := _BARE_KEY.match(self._text, self._at):
                self._at = bare.end()
                keys.append(bare.group())
            self._skip_blank()
            if not self._take("."):
                return tuple(keys)

    def _take(self, token: str) -> bool:
        found = self._text.startswith(token, self._at)
        self._at += len(token) if found else 0
        return found

    def _skip_blank(self) -> int:
        blank = _BLANK.match(self._text, self._at)
        self._at = blank.end() if blank else self._at
        return self._at

    def _line(self) -> int:
        return bisect_right(self._starts, self._at)

    def _note(self, path: Path, line: int | None = None) -> None:
        for end in range(1, len(path) + 1):
            self._lines.setdefault(path[:end], self._line() if line is None else line)


def _unquoted(key: str) -> str:
    if key[0] == "'":
        return key[1:-1]
    # A basic string differs from JSON's only in \UXXXXXXXX (and in raw tabs, which strict=False lets pass).
    text = re.sub(r"\\U([0-9a-fA-F]{8})", lambda m: json.dumps(chr(int(m.group(1), 16)))[1:-1], key)
    return str(json.loads(text, strict=False))
