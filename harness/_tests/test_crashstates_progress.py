"""Progress is for a person at a terminal, and leaves nothing behind."""

from __future__ import annotations

import pytest

from harness.crashstates import progress


def told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool) -> str:
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    with progress.progress("states") as shown:
        for _ in range(1200):
            shown.count("a state", "its verdict")
    return capsys.readouterr().err


def test_it_counts_on_a_terminal_and_is_gone_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = told(capsys, monkeypatch, is_terminal=True)
    assert "1,200 states" in text
    assert text.endswith("\r\033[K")
    assert "\n" not in text


def test_nobody_else_sees_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(capsys, monkeypatch, is_terminal=False) == ""
