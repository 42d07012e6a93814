"""What a trouble is: something that goes wrong with the disk, or beside it, while a save runs; one file a trouble.

Each is a sweep: the trouble comes at the first call it can befall, then at the second, and so on through the calls
that the undisturbed save makes, rank by rank. Every trial is a save of its own, in a directory of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from harness.crashstates.positions import Position
from harness.crashstates.verdict import SAFE, Verdict

if TYPE_CHECKING:
    from harness.crashstates.testbed import Testbed

MOST_TRIALS = 400  # of a trouble


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One trial and what came of it.

    Attributes:
        what: the trouble, such as ``ENOSPC``.
        position: where it was put; None: it is not put at a call.
        rank: whose trouble it was.
        verdict: ``not-triggered`` if it did not come up.
        saved: what the save did.
        loaded: what load did then.
        has_returned: the save returned on a rank: it is acknowledged.
        again: of the same save by new ranks after a failed one, with its reason; None: it had not failed.
    """

    what: str
    position: Position | None
    rank: int
    verdict: Verdict
    saved: str = ""
    loaded: str = ""
    has_returned: bool = False
    again: tuple[Verdict, str] | None = None

    @property
    def has_fired(self) -> bool:
        return self.verdict != "not-triggered"

    @property
    def has_failed(self) -> bool:
        return self.has_fired and (self.verdict not in SAFE or self.fails_again)

    @property
    def fails_again(self) -> bool:
        return self.again is not None and self.again[0] not in SAFE


class Trouble:
    """Base of all; a new one is a new file of this folder with a subclass that has a ``name``.

    Class attributes:
        name: as it is asked for on the command line.
        meaning: one line for the report.
        excused: verdicts that no save could have avoided.
        cure: what helps against the others; None: it depends on what came of it.
    """

    name: ClassVar[str]
    meaning: ClassVar[str]
    excused: ClassVar[frozenset[Verdict]] = frozenset()
    cure: ClassVar[str | None] = None

    def attempts(self, bed: Testbed) -> Iterator[Attempt]:
        """Try it everywhere; ends by itself after the last call that it can befall.

        Raises:
            UnavailableError: this machine cannot make such trouble; with the cure.
        """
        raise NotImplementedError


BLAMELESS: frozenset[Verdict] = frozenset({"lost-ack", "lost-work"})
"""What no save can avoid on a disk that lies: that a lost one is lost. What is loaded must be whole all the same."""


def spread(positions: list[Position], most: int) -> list[Position]:
    """At most so many of them, evenly spread, with the first and the last."""
    if len(positions) <= most:
        return positions
    return [positions[i * (len(positions) - 1) // (most - 1)] for i in range(most)]
