"""A shared file system shows late what another rank has made: a name that is there is not found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness.crashstates.positions import LOOKUPS
from harness.crashstates.trouble.base import Attempt, Trouble

if TYPE_CHECKING:
    from harness.crashstates.testbed import Testbed


class LateVisible(Trouble):
    """On ranks other than 0, as on NFS, whose attribute cache is some seconds old; with one rank, on that one."""

    name = "late-visible"
    meaning = "an open or a stat does not find what is there (ENOENT)"

    def attempts(self, bed: Testbed) -> Iterator[Attempt]:
        for position in bed.positions(LOOKUPS):
            if position.rank > 0 or bed.session.ranks == 1:
                yield bed.attempt("ENOENT", position, inject=f"{position.call}:error=ENOENT:when={position.k}")
