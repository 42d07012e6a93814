"""What a job begins with that begins on what a crash left: a directory, or an archive of one of its states."""

from __future__ import annotations

import os
import posixpath
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.crashstates.archive import read_archive
from harness.crashstates.read.disk import Disk
from harness.crashstates.tree import Link, Visible
from harness.errors import RecordError


@dataclass(frozen=True, kw_only=True)
class Start:
    """What a crash left of a checkpoint directory.

    Attributes:
        path: where it was read.
        visible: what an archive holds; None: ``path`` is a directory.
        acknowledged: the newest step whose save had been reported done there; None: nothing tells.
    """

    path: Path
    visible: Visible | None = None
    acknowledged: int | None = None

    def put(self, root: Path) -> None:
        """Make ``root`` a copy of it; its parent must be there, and ``root`` not.

        Raises:
            RecordError: it cannot be copied, or holds something beside files, directories and links.
        """
        try:
            if self.visible is None:
                shutil.copytree(self.path, root, symlinks=True)
            else:
                Disk(root).put(self.visible)
        except shutil.Error as error:  # of several files
            _, _, why = error.args[0][0]
            raise RecordError(f"{self.path}: cannot be copied for the job to begin with: {why}") from error
        except (OSError, ValueError, OverflowError) as error:  # of an archive: a name or a time that no file can have
            raise RecordError(f"{self.path}: cannot be copied for the job to begin with ({error})") from error
        for name, text in _links_below(root):  # through other links it may lead out as well
            if not Path(os.path.realpath(root / name)).is_relative_to(os.path.realpath(root)):
                shutil.rmtree(root)
                raise _leads_outside(self.path, name, text)


def load_start(path: Path, runs_dir: Path) -> Start:
    """What is at ``path``, a directory or an archive that ``crashstates --keep`` wrote; of a directory only its links.

    Raises:
        RecordError: it is not there, cannot be read, is neither of both, holds ``runs_dir``, where it would be copied
            into itself, or a link that leads out of it: through it the job would change what is no part of the run.
    """
    if runs_dir.resolve().is_relative_to(path.resolve()):
        raise RecordError(f"{path}: the runs are kept in it ({runs_dir}); name the directory of the checkpoints alone")
    if path.is_dir():
        start, links = Start(path=path), _links_below(path)
    elif path.is_file():
        kept = read_archive(path)
        start = Start(path=path, visible=kept.visible, acknowledged=kept.acked)
        links = ((name, node.text) for name, node in kept.visible.items() if isinstance(node, Link))
    else:
        raise RecordError(f"{path}: is neither a directory nor an archive that crashstates --keep wrote")
    for name, text in links:
        if _leads_out(name, text):
            raise _leads_outside(path, name, text)
    return start


def _leads_outside(path: Path, name: str, text: str) -> RecordError:
    return RecordError(
        f"{path}: {name} is a link to {text}, out of the directory; the job may begin only with what is in it: "
        "make the link relative, or take it out"
    )


def _links_below(root: Path) -> Iterator[tuple[str, str]]:
    """Path from ``root`` and text of each symbolic link."""

    def refuse(error: OSError) -> None:
        raise RecordError(f"{error.filename}: cannot be read: {error.strerror}") from error

    for directory, names, files in os.walk(root, onerror=refuse):
        for path in (Path(directory, name) for name in (*names, *files)):
            if path.is_symlink():
                yield path.relative_to(root).as_posix(), os.readlink(path)  # noqa: PTH115  its text as it stands


def _leads_out(name: str, text: str) -> bool:
    target = posixpath.normpath(posixpath.join(posixpath.dirname(name), text))
    return posixpath.isabs(target) or target == ".." or target.startswith("../")
