"""Two jobs save into the same directory: one was thought dead, was replaced, and goes on in the middle of a save."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness.crashstates.positions import NAMES, OPENS, SYNCS, WRITES
from harness.crashstates.trouble.base import Attempt, Trouble, spread

if TYPE_CHECKING:
    from harness.crashstates.testbed import Testbed

MOST_STOPS = 16  # a rank: each is two saves


class TwoWriters(Trouble):
    """One rank is stopped after a call; other ranks save the same step; then the first goes on.

    Whichever of the two returns has acknowledged the step. Where the second waits for the first (a lock), the first
    goes on after a while.
    """

    name = "two-writers"
    cure = "let one job write at a time (a lock that dies with its owner), or give each job's files names of their own"
    meaning = "a second job saves the same step while the first is stopped in the middle of it"

    def attempts(self, bed: Testbed) -> Iterator[Attempt]:
        for rank in range(bed.session.ranks):
            found = [p for p in bed.positions(NAMES | OPENS | SYNCS | WRITES) if p.rank == rank]
            for position in spread(found, MOST_STOPS):
                yield bed.attempt_beside(position)
