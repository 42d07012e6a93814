"""The process is killed: what it leaves must load, and the next save of the same step must cope with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness.crashstates.positions import NAMES, OPENS, SYNCS, WRITES
from harness.crashstates.record.strace import Call
from harness.crashstates.trouble.base import Attempt, Trouble

if TYPE_CHECKING:
    from harness.crashstates.testbed import Testbed


class Killed(Trouble):
    """A real SIGKILL, so that a real save follows: of states that are only made from a record, none can be tried."""

    name = "killed"
    meaning = (
        "a rank is killed at a call that writes, syncs or names, and the same step is saved again by new processes"
    )

    def attempts(self, bed: Testbed) -> Iterator[Attempt]:
        for position in bed.positions(WRITES | NAMES | OPENS | SYNCS):
            inject = f"{position.call}:signal=SIGKILL:when={position.k}"
            yield bed.attempt("SIGKILL", position, inject=inject, has_fired=_was_cut_off)


def _was_cut_off(call: Call) -> bool:
    """A call that never came back, neither with a result nor to be restarted."""
    return call.result is None and call.error is None
