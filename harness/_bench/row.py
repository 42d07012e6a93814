"""One line of the table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Row:
    """A measured figure and the most it may be.

    Attributes:
        measured, budget: in the same unit; for figures that must be large, both are given as their inverse.
        detail: what the figure comes from, with units.
    """

    what: str
    measured: float
    budget: float
    detail: str

    @property
    def is_within(self) -> bool:
        return self.measured <= self.budget

    def __str__(self) -> str:
        mark = "ok" if self.is_within else "OVER"
        return f"{mark:<5} {self.what:<58} {self.measured:>8.3g} of {self.budget:<8.3g} {self.detail}"
