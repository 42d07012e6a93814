"""Other people's savers, unmodified, each used as its documentation says; expected.toml has their verdicts."""

from __future__ import annotations

import importlib.util
import tomllib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a crash does to one saver; the fields are told in expected.toml."""

    name: str
    weakest: dict[str, str]
    what: str
    upstream: tuple[str, ...]
    requires: tuple[str, ...] = ()
    file: str | None = None
    directory: str | None = None
    most: int = 1_000

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.file or self.name}.py"

    @property
    def missing(self) -> list[str]:
        """Packages that it needs and that are not installed."""
        return [package for package in self.requires if importlib.util.find_spec(package) is None]


def load_expected() -> dict[str, Expected]:
    """The entries of expected.toml by name."""
    tables = tomllib.loads((FOLDER / "expected.toml").read_text())
    return {name: Expected(name=name, **table) for name, table in tables.items()}
