"""The family of faults that act on the files of checkpoints, as a disk or another process would: all at once, and with
nobody told. They look below {checkpoints}, for directories that are named as ``CheckpointStore`` names them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from harness.faults.base import Fault, Level, effect_of
from harness.wire import Event

_STEP = re.compile(r"step-(0|[1-9][0-9]*)")


class FilesFault(Fault):
    """Acts at an instant: a phase is entered, a failpoint is reached."""

    level: ClassVar[Level] = "storage"
    places: ClassVar = frozenset({"step", "phase", "failpoint"})

    def damage(self, root: Path) -> Mapping[str, Any]:
        """Do it to the checkpoints in ``root``; returns what was measured.

        Returns:
            ``before`` and ``after``: what stood there, in a few words that differ if it was changed; ``damaged``: the
            name of the checkpoint that is no longer what was saved, None if none. Or ``problem``: why nothing was done.
        """
        raise NotImplementedError

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        effect = effect_of(fired, after)
        if effect is None:
            return f"nothing is on record of what was damaged at {fired.where}"
        if problem := effect.get("problem"):
            return str(problem)
        return f"nothing changed at {fired.where}: {effect['after']}" if effect["before"] == effect["after"] else None


def checkpoints_in(root: Path) -> dict[int, Path]:
    """Step -> the directory that has a checkpoint's name, ascending; whether it is one is another question."""
    found = [(int(match[1]), path) for path in root.glob("step-*") if (match := _STEP.fullmatch(path.name))]
    return dict(sorted(found))
