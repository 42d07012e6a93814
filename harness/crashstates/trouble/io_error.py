"""The disk fails: a write, an fsync or a close ends with EIO."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness.crashstates.positions import CLOSES, SYNCS, WRITES
from harness.crashstates.trouble.base import Attempt, Trouble

if TYPE_CHECKING:
    from harness.crashstates.testbed import Testbed


class IoError(Trouble):
    """After a failed fsync the kernel forgets what it could not write, and the next fsync succeeds.

    So what had been written before a failed fsync counts as lost, whatever is synced later, unless it is written anew
    (https://lwn.net/Articles/752063/). A save that returns all the same is judged by what a power loss then leaves.
    """

    name = "io-error"
    meaning = "a write, an fsync or a close fails with EIO"

    def attempts(self, bed: Testbed) -> Iterator[Attempt]:
        for position in bed.positions(WRITES | CLOSES):
            yield bed.attempt("EIO", position, inject=f"{position.call}:error=EIO:when={position.k}")
        for position in bed.positions(SYNCS):
            yield bed.attempt_and_lose("EIO", position, "error=EIO")
