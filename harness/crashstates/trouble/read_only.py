"""The checkpoint directory cannot be written: it was mounted read-only, or belongs to somebody else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from harness.crashstates.trouble.base import Attempt, Trouble

if TYPE_CHECKING:
    from harness.crashstates.testbed import Testbed

REFUSALS = frozenset({"EACCES", "EPERM", "EROFS"})


class ReadOnly(Trouble):
    """All that is in the directory loses its write permission before the save; root's power over modes is given up."""

    name = "read-only"
    meaning = "nothing in the checkpoint directory may be written (EACCES)"

    def attempts(self, bed: Testbed) -> Iterator[Attempt]:
        yield bed.attempt(
            "read-only directory",
            None,
            around=lambda _: _unwritable(bed.root),
            has_fired=lambda call: call.error in REFUSALS,
            obeys_modes=True,
        )


@contextmanager
def _unwritable(root: Path) -> Iterator[None]:
    modes = {path: path.stat().st_mode for path in (root, *root.rglob("*")) if not path.is_symlink()}
    for path, mode in modes.items():
        path.chmod(mode & ~0o222)
    try:
        yield
    finally:
        for path, mode in modes.items():
            if os.path.lexists(path):
                path.chmod(mode)
