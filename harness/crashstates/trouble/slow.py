"""The disk is slow: every call that waits for it takes longer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness.crashstates.positions import NAMES, OPENS, SYNCS
from harness.crashstates.trouble.base import Attempt, Trouble

if TYPE_CHECKING:
    from harness.crashstates.testbed import Testbed

DELAY_MS = 20


class Slow(Trouble):
    """One rank after the other is held up; nothing fails, so the save must return."""

    name = "slow"
    meaning = f"each fsync, rename and open of one rank takes {DELAY_MS} ms longer"

    def attempts(self, bed: Testbed) -> Iterator[Attempt]:
        calls = ",".join(f"?{call}" for call in sorted(SYNCS | NAMES | OPENS))
        for rank in range(bed.session.ranks):
            yield bed.attempt(
                f"{DELAY_MS} ms", None, rank=rank, inject=f"{calls}:delay_exit={1000 * DELAY_MS}", must_return=True
            )
