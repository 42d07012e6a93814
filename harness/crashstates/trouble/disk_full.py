"""There is no room: writes fail with ENOSPC, stop in the middle at a limit, or meet a file system that is full."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from harness.crashstates.positions import WRITES
from harness.crashstates.record.strace import Call
from harness.crashstates.scratch import scratch
from harness.crashstates.trouble.base import Attempt, Trouble
from harness.errors import UnavailableError

if TYPE_CHECKING:
    from harness.crashstates.testbed import Testbed

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SHARES = (0.0, 0.25, 0.5, 0.75)  # of what a save needs; and a page less than all of it
_ROOMY = "1g"  # a tmpfs takes no more than what is in it


class DiskFull(Trouble):
    """ENOSPC from each write on; a limit of files' sizes, where writes are cut short first; a tmpfs that runs full.

    The last needs the right to mount: without it, it is left out.
    """

    name = "disk-full"
    meaning = "there is no room: ENOSPC from each write on, a limit of a file's size, a small file system"

    def attempts(self, bed: Testbed) -> Iterator[Attempt]:
        for position in bed.positions(WRITES):
            yield bed.attempt(
                "ENOSPC", position, inject=f"{position.call}:error=ENOSPC:when={position.k}+"
            )  # it stays full
        yield from self._limited(bed)
        if can_mount():
            yield from self._small(bed)

    def _limited(self, bed: Testbed) -> Iterator[Attempt]:
        for rank in range(bed.session.ranks):
            for limit_bytes in _between(bed.file_sizes(rank)):
                yield bed.attempt(
                    f"files of at most {limit_bytes} bytes",
                    None,
                    rank=rank,
                    around=_limit(limit_bytes),
                    has_fired=has_stopped,
                )

    def _small(self, bed: Testbed) -> Iterator[Attempt]:
        with _mounted(bed.root):
            need_bytes = bed.growth_bytes()
            for room_bytes in dict.fromkeys([*(int(need_bytes * s) for s in _SHARES), need_bytes - _PAGE_BYTES]):
                if room_bytes >= 0:
                    yield bed.attempt(
                        f"{room_bytes} bytes left",
                        None,
                        around=_squeeze(bed.root, room_bytes),
                        has_fired=has_stopped,
                    )


def _between(sizes_bytes: list[int]) -> list[int]:
    """Limits under which some of these files still fit: none, and one in the middle below each size."""
    edges = sorted({0, *sizes_bytes})
    return [0, *((low + high) // 2 for low, high in pairwise(edges) if high - low > 1)]


def _limit(size_bytes: int) -> Callable[[int], AbstractContextManager[None]]:
    @contextmanager
    def limited(pid: int) -> Iterator[None]:
        """Python ignores SIGXFSZ, so that the write fails instead; the rank is gone afterwards."""
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))
        yield

    return limited


@cache
def can_mount() -> bool:
    """Whether this process may mount a tmpfs."""
    with scratch() as directory:
        place = str(directory / "mounted")
        Path(place).mkdir()
        if not _run("mount", "-t", "tmpfs", "-o", f"size={_PAGE_BYTES}", "tmpfs", place):
            return False
        return _run("umount", place)


@contextmanager
def _mounted(root: Path) -> Iterator[None]:
    root.mkdir(exist_ok=True)
    if not _run("mount", "-t", "tmpfs", "-o", f"size={_ROOMY},mode=0700", "tmpfs", str(root)):
        raise UnavailableError(f"no small file system could be mounted on {root}; give another --directory")
    try:
        yield
    finally:
        _run("umount", "-l", str(root))


def _squeeze(root: Path, room_bytes: int) -> Callable[[int], AbstractContextManager[None]]:
    @contextmanager
    def squeezed(_: int) -> Iterator[None]:
        """So many bytes are left, in whole pages."""
        status = os.statvfs(root)
        used_bytes = (status.f_blocks - status.f_bfree) * status.f_frsize
        size_bytes = used_bytes + room_bytes // _PAGE_BYTES * _PAGE_BYTES
        _run("mount", "-o", f"remount,size={max(size_bytes, _PAGE_BYTES)}", str(root))
        try:
            yield
        finally:
            _run("mount", "-o", f"remount,size={_ROOMY}", str(root))

    return squeezed


def has_stopped(call: Call) -> bool:
    """Whether a write met the end of what there is: it failed, or was cut short."""
    if call.error in ("ENOSPC", "EFBIG"):
        return True
    asked = call.arguments[2] if call.name in ("write", "pwrite64") and len(call.arguments) > 2 else None
    return isinstance(asked, int) and call.error is None and call.result is not None and call.result < asked


def _run(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
