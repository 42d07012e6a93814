"""Ports for the ranks' store."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from harness.rank import ports


@pytest.fixture
def given_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that tells which ports the kernel gives out."""
    file = tmp_path / "ip_local_port_range"
    monkeypatch.setattr(ports, "_RANGE", file)
    return file


def test_it_is_below_those_that_the_kernel_gives_out(given_out: Path) -> None:
    given_out.write_text("32768\t60999\n")
    found = {ports.outside_the_range(lambda: 0) for _ in range(20)}
    assert len(found) > 1
    assert all(15000 <= port < 32768 for port in found)


def test_one_that_is_listened_on_is_passed_over(given_out: Path) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        assert not ports._is_free(port)
    assert ports._is_free(port)


@pytest.mark.parametrize("text", ["1024 65535", None], ids=["none is left below", "nobody tells"])
def test_where_none_is_left_it_is_torchs_own(given_out: Path, text: str | None) -> None:
    if text is not None:
        given_out.write_text(text)
    assert ports.outside_the_range(lambda: 4711) == 4711
