"""Where the side effects of a job are: what the world outside of its checkpoints sees of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.faults.base import FORBID_EXTRA


@dataclass(frozen=True, kw_only=True)
class Effect:
    """Side effects of one kind: the rows of a table, or the lines of a file.

    Attributes:
        database: path of an SQLite file; it begins with {checkpoints} or {run_dir}.
        table: its table.
        lines: path, as for database, of a file with one JSON object a line; in place of database and table.
        key: the columns that name an effect: with the same values it must stand once.
        step: the column of key that is the global step; a key without it names an effect of the whole run.
        ignore: columns that may differ from the fault-free run's, such as the number of the launch.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = FORBID_EXTRA

    key: tuple[str, ...]
    database: str | None = None
    table: str | None = None
    lines: str | None = None
    step: str = "step"
    ignore: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Of the file, as the scenario says it."""
        return self.database or self.lines or ""

    @property
    def name(self) -> str:
        """``metrics in {checkpoints}.sqlite``, or the path of the file of lines."""
        return self.path if self.table is None else f"{self.table} in {self.path}"

    @property
    def has_step(self) -> bool:
        return self.step in self.key
