"""Scenario files that a test writes, and what is said of those that are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import ScenarioError
from harness.scenario import load_scenario

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        path = tmp_path / "s.toml"
        path.write_text(text)
        return path

    return write


def refusal(path: Path) -> list[str]:
    """The problems without the folder, which differs from test to test."""
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    return [problem.removeprefix(f"{path.parent}/") for problem in caught.value.problems]
