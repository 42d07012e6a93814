"""harness.rank.calls: the line of the script that a call comes from."""

from __future__ import annotations

import sys
from typing import Any

from harness.rank import calls


def test_code_that_takes_the_place_of_other_code_has_lines_of_its_own() -> None:
    for number in range(calls.MAX_LINES + 100):  # each is gone before the next one is made
        line = 1 + number % 7
        source = "\n" * (line - 1) + "site = site_of(sys._getframe())"
        found: dict[str, Any] = {"site_of": calls.site_of, "sys": sys}
        exec(compile(source, f"/script_{number}.py", "exec"), found)
        assert found["site"] == f"/script_{number}.py:{line}"
    assert len(calls._lines) <= calls.MAX_LINES
