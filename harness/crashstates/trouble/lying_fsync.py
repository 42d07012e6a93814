"""The disk lies: an fsync succeeds and keeps nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness.crashstates.positions import SYNCS
from harness.crashstates.trouble.base import BLAMELESS, Attempt, Trouble

if TYPE_CHECKING:
    from harness.crashstates.testbed import Testbed


class LyingFsync(Trouble):
    """What a power loss leaves after the save, where one of its syncs kept nothing.

    No save can keep on such a disk what it has acknowledged, so a lost one is no failure; but what is loaded must be
    whole, and there must be something that loads.
    """

    name = "lying-fsync"
    meaning = "an fsync returns and has kept nothing; then power is lost"
    excused = BLAMELESS
    cure = "keep the checkpoint before it, and a digest with each, so that load can tell a broken one and fall back"

    def attempts(self, bed: Testbed) -> Iterator[Attempt]:
        for position in bed.positions(SYNCS):
            yield bed.attempt_and_lose("kept nothing", position, "retval=0")
