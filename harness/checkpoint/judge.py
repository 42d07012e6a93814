"""What each entry of a checkpoint directory is worth, read from the bytes alone.

Independent of the store that wrote it and without torch, so that the harness can use it to check the store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.checkpoint import files, layout
from harness.quoted import quoted

Verdict = Literal["complete", "incomplete", "corrupt", "temporary", "abandoned", "quarantined", "trash", "foreign"]

_PREFIXES: dict[str, tuple[Verdict, str]] = {
    ".corrupt-": ("quarantined", "was found invalid by a load and set aside"),
    ".abandoned-": ("abandoned", "is newer than what a job rolled back to"),
    ".trash-": ("trash", "was being deleted by retention"),
}
MAX_NAMED = 3  # of the files that should not be there


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One name in a checkpoint directory.

    Attributes:
        step: of a checkpoint and of a temporary directory; None for the rest.
        verdict: ``complete``: may be loaded. ``incomplete``: no marker was ever finished. ``corrupt``: it was marked
            complete, and something does not fit. The others were never a candidate.
        reason: why, in words; for ``complete`` what was checked.
        manifest: sha256 of the manifest, where the marker vouches for it.
    """

    name: str
    step: int | None
    verdict: Verdict
    reason: str
    manifest: str | None = None


def inspect(root: Path | str, read_data: bool = True) -> list[Entry]:
    """Judge every entry of ``root``, checkpoints newest first, then the others by name.

    Args:
        read_data: compare the digests of the data files too; without it only their names and sizes.

    Raises:
        OSError: the directory itself cannot be read. A missing one gives an empty list.
    """
    try:
        with files.open_root(Path(root)) as root_fd:
            names = [name for name in files.list_names(root_fd) if name not in layout.BOOKKEEPING]
            entries = [judge(root_fd, name, read_data=read_data) for name in candidates(names)]
            entries += [_other(name) for name in names if layout.step_of(name) is None]
            return entries
    except FileNotFoundError:
        return []


def newest_valid(root: Path | str) -> Entry | None:
    """The newest complete checkpoint, its data read and compared; no data of any older one is read.

    Raises:
        OSError: the directory itself cannot be read. A missing one gives None.
    """
    try:
        with files.open_root(Path(root)) as root_fd:
            judged = (judge(root_fd, name) for name in candidates(files.list_names(root_fd)))
            return next((entry for entry in judged if entry.verdict == "complete"), None)
    except FileNotFoundError:
        return None


def candidates(names: Iterable[str]) -> list[str]:
    """The names that only a checkpoint has, newest first; by number, never by time or by alphabet."""
    steps = ((layout.step_of(name), name) for name in names)
    return [name for _, name in sorted(((step, name) for step, name in steps if step is not None), reverse=True)]


def judge(
    root_fd: int, name: str, *, read_data: bool = True, mine: Callable[[layout.FileRecord], bool] = lambda _: True
) -> Entry:
    """Judge the checkpoint directory ``name``.

    Args:
        mine: which data files to read; those left out are compared by size only (other ranks read them).
    """
    step = layout.step_of(name)
    try:
        with files.open_directory(root_fd, name) as dir_fd:
            manifest, manifest_sha256 = load_manifest(dir_fd, step)
            _check_files(dir_fd, manifest, mine if read_data else lambda _: False)
    except _Incomplete as error:
        return Entry(name=name, step=step, verdict="incomplete", reason=str(error))
    except (layout.Damaged, OSError) as error:
        return Entry(name=name, step=step, verdict="corrupt", reason=str(error))
    checked = "marker, manifest, files and their " + ("digests" if read_data else "sizes") + " agree"
    return Entry(name=name, step=step, verdict="complete", reason=checked, manifest=manifest_sha256)


class _Incomplete(layout.Damaged):
    """The save never got as far as a finished marker."""


def load_manifest(dir_fd: int, step: int | None) -> tuple[layout.Manifest, str]:
    """The manifest of an open checkpoint directory and its sha256, vouched for by COMPLETE.

    Raises:
        layout.Damaged: marker and manifest are not a finished pair for ``step``; its subclass for a marker that was
            never finished.
        OSError: one of them cannot be read.
    """
    try:
        marker = files.read_small(dir_fd, layout.COMPLETE, 2 * layout.MAX_MANIFEST_BYTES)
    except FileNotFoundError:
        raise _Incomplete(f"{layout.COMPLETE} is missing") from None
    if not marker:
        raise _Incomplete(f"{layout.COMPLETE} is empty")
    try:
        data = files.read_small(dir_fd, layout.MANIFEST, layout.MAX_MANIFEST_BYTES)
    except FileNotFoundError:
        raise layout.Damaged(f"{layout.COMPLETE} is there but {layout.MANIFEST} is missing") from None
    manifest, manifest_sha256 = layout.parse_manifest(data), layout.digest(data)
    expected = layout.marker_text(manifest, manifest_sha256)
    if marker != expected:
        if expected.startswith(marker):
            raise _Incomplete(f"{layout.COMPLETE} is torn: {len(marker)} of {len(expected)} bytes")
        raise layout.Damaged(f"{layout.COMPLETE} does not belong to this {layout.MANIFEST}")
    if step is not None and manifest.step != step:
        raise layout.Damaged(f"{layout.MANIFEST} is of step {manifest.step}")
    return manifest, manifest_sha256


def _check_files(dir_fd: int, manifest: layout.Manifest, read: Callable[[layout.FileRecord], bool]) -> None:
    listed = {layout.MANIFEST, layout.COMPLETE, *(f.name for f in manifest.files)}
    found = set(files.list_names(dir_fd))
    if missing := sorted(listed - found):
        raise layout.Damaged(f"{', '.join(missing)} is listed but missing")
    if extra := sorted(found - listed):
        raise layout.Damaged(f"{', '.join(map(quoted, extra[:MAX_NAMED]))} is there but not listed")
    for record in manifest.files:
        file = files.open_to_read(dir_fd, record.name)
        try:
            if file.size_bytes != record.size_bytes:
                raise layout.Damaged(f"{record.name} has {file.size_bytes} bytes, not {record.size_bytes}")
            if read(record) and files.digest_of(file) != record.sha256:
                raise layout.Damaged(f"{record.name} has not the bytes that were saved (sha256 differs)")
        finally:
            os.close(file.fd)


def _other(name: str) -> Entry:
    staging = layout.staging_of(name)
    if staging is not None:
        return Entry(name=name, step=staging[0], verdict="temporary", reason="a save that was never published")
    for prefix, (verdict, reason) in _PREFIXES.items():
        if name.startswith(prefix):
            return Entry(name=name, step=None, verdict=verdict, reason=reason)
    return Entry(name=name, step=None, verdict="foreign", reason="not a name that the store gives")
