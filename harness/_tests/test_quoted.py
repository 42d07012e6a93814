"""What is cut is said to be, and leaves no quote open."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.quoted import cut, quoted


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("short", "'short'"),
        ("long " * 9, "'long long long l...'"),
        (["one", "two", "three", "four"], "['one', 'two', 't...'"),
        (["one", "two", 3, 4.25, 5.5, 6], "['one', 'two', 3,..."),
        ("it's " * 9, "\"it's it's it's i...\""),
        ("\u00e4" * 9, r"'\xe4\xe4\xe4\xe4...'"),
        ([1] * 40, "[1, 1, 1, 1, 1, 1..."),
        (None, "None"),
    ],
)
def test_of_a_long_value_the_beginning_is_shown(value: Any, shown: str) -> None:
    assert quoted(value, 20) == shown


@pytest.mark.parametrize("most", range(8, 40))
def test_no_quote_is_left_open_wherever_it_is_cut(most: int) -> None:
    text = cut(json.dumps({'a "name"': ["back\\slash", 'say "no"', "x" * 40]}), most)
    assert text.replace("\\\\", "").replace('\\"', "").count('"') % 2 == 0
    assert len(text) <= most + 1
