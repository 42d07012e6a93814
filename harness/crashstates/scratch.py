"""Directories for what a run needs while it runs. What a run that was killed has left, the next one removes."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from harness.errors import UnavailableError

_PREFIX = "chaos-crashstates-"
_HELD = ".held"  # a file in each that is locked for as long as its owner lives


@contextmanager
def scratch(place: Path | None = None) -> Iterator[Path]:
    """A new directory, gone at the end.

    Args:
        place: where; None: where temporary files are.

    Raises:
        UnavailableError: nothing can be written there.
    """
    place = place or Path(tempfile.gettempdir())
    if not os.access(place, os.W_OK):
        raise UnavailableError(f"{place}: nothing can be written there; give another directory")
    _remove_abandoned(place)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=place, ignore_cleanup_errors=True) as name:
        draft = Path(name, f"{_HELD}.draft")
        with draft.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            draft.rename(Path(name, _HELD))  # now: whoever sees it without its lock takes it for abandoned
            yield Path(name)


@cache  # once a process
def _remove_abandoned(place: Path) -> None:
    for directory in place.glob(f"{_PREFIX}*"):
        try:
            with Path(directory, _HELD).open("r+") as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _unmount_below(directory)
                shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            continue  # it is held, or being made, or another user's


def _unmount_below(directory: Path) -> None:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        if (mounted := line.split()[1]).startswith(f"{directory}/"):
            subprocess.run(["umount", "-l", mounted], capture_output=True, check=False)
