"""Readers of crash states with a load of a few lines, and a host that has imported torch."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.crashstates.ranks.forked import Closing
from harness.crashstates.ranks.session import Host, Session
from harness.crashstates.read.reading import Reader


@pytest.fixture(scope="module")
def torch_host() -> Iterator[Host]:
    with Host(["torch.distributed.nn", "torch._dynamo"]) as host:
        yield host


Open = Callable[..., Reader]


@pytest.fixture
def open_reader(tmp_path: Path) -> Iterator[Open]:
    """A reader of a load with this body."""
    to_close: list[Closing] = []

    def open_reader(host: Host, body: str, prelude: str = "", **options: float) -> Reader:
        file = tmp_path / "users.py"
        text = textwrap.indent(textwrap.dedent(body), "    ")
        file.write_text(f"{textwrap.dedent(prelude)}\ndef save(directory, step): pass\ndef load(directory):\n{text}\n")
        to_close.append(session := Session(file, host=host))
        to_close.append(reader := Reader(session, tmp_path / "there" / "root", **options))  # type: ignore[arg-type]
        return reader

    (tmp_path / "there").mkdir()
    yield open_reader
    for opened in reversed(to_close):
        opened.close()
