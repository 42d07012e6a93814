"""The locator finds exactly the places that tomllib parses, each on its line."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from harness.scenario.toml_lines import Path, line_of, locate


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


LINES = {
    "a plain value": ("\na = 1\n", ("a",), 2),
    "a value after a comment that looks like one": ("# a = 1\na = 2", ("a",), 2),
    "a dotted key": ("x = 1\na.b.c = 1", ("a", "b", "c"), 2),
    "a quoted key with a dot": ('\n"a.b" = 1', ("a.b",), 2),
    "a literal key": ("\n'a\\b' = 1", ("a\\b",), 2),
    "a key with an escape": ('\n"\\u0041\\U0001F600\\t" = 1', ("A\N{GRINNING FACE}\t",), 2),
    "an item of a list over lines": ("a = [\n 1, # one\n 2,\n]", ("a", 1), 3),
    "a key of a table in a list": ("a = [\n { b = 1 },\n { b = 2, c = 3 } ]", ("a", 1, "c"), 3),
    "what follows a text over lines": ('a = """\nb = 1\n[c]\n"""\nb = 2', ("b",), 5),
    "what follows a literal over lines": ("a = '''\nb = 1\n'''\nb = 2", ("b",), 4),
    "what follows quotes before the end of a text": ('a = """x""""\nb = 2', ("b",), 2),
    "what follows an escaped quote": ('a = "\\"#"\nb = 2', ("b",), 2),
    "what follows brackets in a string": ("a = [\"]\", '}']\nb = 2", ("b",), 2),
    "the second table of an array": ("[[f]]\nk = 1\n[[f]]\nk = 2", ("f", 1), 3),
    "a value in the second table of an array": ("[[f]]\nk = 1\n[[f]]\nk = 2", ("f", 1, "k"), 4),
    "a table under an array": ("[[f]]\nk = 1\n[f.at]\nstep = 3", ("f", 0, "at", "step"), 4),
    "an array under an array": ("[[f]]\n[[f.g]]\n[[f.g]]\nh = 1", ("f", 0, "g", 1, "h"), 4),
    "a header with blanks": ("\n[ a . b ]\nc = 1", ("a", "b", "c"), 3),
    "a table that is only implied": ("x = 1\n[a.b]\nc = 1", ("a",), 2),
    "lines that end as on Windows": ("a = 1\r\n\r\nb = 2\r\n", ("b",), 3),
    "a date": ("a = 1979-05-27 07:32:00Z # x\nb = 1", ("b",), 2),
}


@pytest.mark.parametrize(("text", "path", "line"), LINES.values(), ids=LINES)
def test_it_says_the_line_of(text: str, path: Path, line: int) -> None:
    lines = locate(text)
    assert lines[path] == line
    assert set(lines) == set(places(tomllib.loads(text)))


def test_what_is_not_written_down_has_the_line_of_what_is_around_it() -> None:
    lines = locate("a = 1\n[[f]]\nat = { x = 1 }\n")
    assert line_of(lines, ("f", 0, "at", "step")) == 3
    assert line_of(lines, ("f", 0, "kind")) == 2
    assert line_of(lines, ("gone",)) == 1


def test_it_finds_just_what_tomllib_parses() -> None:
    located = 0
    for seed in range(2000):
        text = _document(random.Random(seed))
        try:
            parsed = tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            continue  # a key or a table twice: only texts that are TOML are located
        lines = locate(text)
        assert set(lines) == set(places(parsed)), text
        located += len(lines)
    assert located > 5000  # most of what was made up is TOML


KEYS = ["a", "b-1", "c_d", "'e f'", '"g#."', '"\\u0068\\""', "x . y", "x.z", '"[" . w', "''"]
HEADERS = ["[t]", "[t.u]  # [[f]]", "[[f]]", "[[ f.g ]]", "[f.h]", "[f.g.i]", "# x = [", "", "\t"]
SCALARS = [
    "1", "-1.5e3", "true", "inf", "1979-05-27", "07:32:00", '""', "''", '"#"', '"\\"]"', "'\\'", "'}#'", '"a, b"',
    '"""x\ny = 1\n"""', '"""\n[z]"""', '"""a""""', '"""\\"""""""', "'''\nk = 2\n'''", "'''it's''''", '""""""',
]  # fmt: skip


def _document(random: random.Random) -> str:
    lines = []
    for _ in range(random.randrange(8)):
        if random.random() < 0.3:
            lines.append(random.choice(HEADERS))
        else:
            comment = random.choice(["", ' # "'])
            lines.append(f"{random.choice(KEYS)} = {_value(random, depth=2)}{comment}")
    return random.choice(["\n", "\r\n"]).join(lines)


def _value(random: random.Random, depth: int) -> str:
    kind = random.random()
    if depth == 0 or kind < 0.5:
        return random.choice(SCALARS)
    items = [_value(random, depth - 1) for _ in range(random.randrange(4))]
    if kind < 0.75:
        return "[ # ]\n" + "".join(f"  {item}, # {n}\n" for n, item in enumerate(items)) + "]"
    return "{ " + ", ".join(f"k{n} = {item}" for n, item in enumerate(items)) + " }"
