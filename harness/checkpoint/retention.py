"""Which checkpoints go, and how: only what this store made, only when enough verified newer ones stay.

Deleting is a rename out of the choice, made durable, before the first byte goes: a crash in between leaves a
``.trash-`` directory that nobody takes for a checkpoint.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence

from harness.checkpoint import files, judge, layout, points
from harness.checkpoint.owner import Claim


def to_retire(root_fd: int, verified: Sequence[int], keep_last: int) -> list[str]:
    """Names of the checkpoints to delete, oldest first.

    Args:
        verified: steps that this process has saved or loaded, ascending. Only these count as kept, since nothing is
            known of the others.
        keep_last: how many verified ones stay.
    """
    kept = [layout.step_name(step) for step in verified[-keep_last:]]
    still_whole = [name for name in kept if judge.judge(root_fd, name, read_data=False).verdict == "complete"]
    if len(still_whole) < keep_last:
        return []
    return list(reversed(_ancestors(root_fd, kept[0])))


def _ancestors(root_fd: int, name: str) -> list[str]:
    """The checkpoints that ``name`` was trained from, newest first, as far as the chain of parents is still here."""
    older = judge.candidates(files.list_names(root_fd))
    older = older[older.index(name) + 1 :]
    by_manifest = {judge.judge(root_fd, other, read_data=False).manifest: other for other in older}
    chain = []
    while (parent := _parent(root_fd, name)) in by_manifest and parent is not None:
        name = by_manifest.pop(parent)
        chain.append(name)
    return chain


def _parent(root_fd: int, name: str) -> str | None:
    with files.open_directory(root_fd, name) as dir_fd:
        manifest, _ = judge.load_manifest(dir_fd, layout.step_of(name))
    return manifest.parent


def retire(root_fd: int, name: str, claim: Claim, changed: Callable[[], None]) -> None:
    """Delete the checkpoint ``name``; ``changed`` is called after each of the two steps."""
    trash = files.free_name(root_fd, f".trash-{claim.attempt}-{name}")
    points.around("ckpt.retention.rename", _rename_durably, root_fd, name, trash)
    changed()
    points.around("ckpt.retention.delete", delete, root_fd, trash)
    changed()


def _rename_durably(root_fd: int, old: str, new: str) -> None:
    files.rename(root_fd, old, new)
    os.fsync(root_fd)


def leftovers(root_fd: int, claim: Claim) -> list[str]:
    """Half-deleted and never-published directories of this store's earlier attempts."""
    found = []
    for name in files.list_names(root_fd):
        made_by = layout.trash_of(name) or layout.staging_of(name)
        if made_by is not None and made_by[1] in claim.known and files.kind_of(root_fd, name) == "a directory":
            found.append(name)
    return found


def delete(root_fd: int, name: str) -> None:
    """Delete a directory of the store's own files, the marker first; whatever else is in it stays, and so does it."""
    with files.open_directory(root_fd, name) as dir_fd:
        inside = files.list_names(dir_fd)
        for file in sorted(inside, key=lambda n: (n != layout.COMPLETE, n == layout.MANIFEST, n)):
            plain = stat.S_ISREG(os.stat(file, dir_fd=dir_fd, follow_symlinks=False).st_mode)
            if plain and layout.is_checkpoint_file(file):
                os.unlink(file, dir_fd=dir_fd)
        is_empty = not files.list_names(dir_fd)
    if is_empty:
        os.rmdir(name, dir_fd=root_fd)
