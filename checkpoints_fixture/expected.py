"""expected.toml as data: what a load must do in each state, and what every entry is worth."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

TABLE = Path(__file__).with_name("expected.toml")


@dataclass(frozen=True, kw_only=True)
class Expected:
    """One state's row.

    Attributes:
        load: the step that loads, ``refused``, or ``nothing``: a fresh start.
        message: words that the refusal contains.
        entries: name -> verdict of every entry that is not simply ``complete``.
        reason: words in the reason of the newest entry that is not complete.
        gone: names of the sound directory that the state took away.
        unread: entries whose damage only whoever reads the tensors can see: ``inspect`` calls them complete.
    """

    load: int | Literal["refused", "nothing"]
    message: str = ""
    entries: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    gone: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def load_expected() -> dict[str, Expected]:
    """State name -> what is expected of it."""
    table = tomllib.loads(TABLE.read_text())
    return {
        name: Expected(**{**row, "gone": tuple(row.get("gone", ())), "unread": tuple(row.get("unread", ()))})
        for name, row in table.items()
    }
