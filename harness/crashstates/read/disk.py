"""A state as real files, and real files as a state."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.crashstates.tree import Directory, File, Link, Node, Visible
from harness.errors import RecordError

_FILE_MODE, _DIRECTORY_MODE = 0o600, 0o700


def modified_s(visible: Visible) -> dict[str, float]:
    """When each entry, and the checkpoint directory itself (``""``), was last changed; seconds since the epoch.

    A directory was when the newest file below it was. An empty one has just been made, so it is as new as anything.
    """
    newest = max((node.t_s for node in visible.values() if isinstance(node, File)), default=0.0)
    times: dict[str, float] = {}
    below: dict[str, float] = {}
    for path, node in reversed(visible.items()):  # children before their parents
        time_s = times[path] = node.t_s if isinstance(node, File) else below.get(path, newest)
        parent = path.rpartition("/")[0]
        if time_s > below.get(parent, -1.0):
            below[parent] = time_s
    times[""] = below.get("", newest)
    return times


def _ns(time_s: float) -> int:
    return int(time_s * 1e9)


def look(root: Path) -> Visible:
    """What is in a real directory, in the order of ``Tree.visible``.

    Raises:
        RecordError: something in it is neither a file, nor a directory, nor a symbolic link.
    """
    return dict(_look(root, ""))


def _look(directory: Path, prefix: str) -> Iterator[tuple[str, Node]]:
    for entry in sorted(directory.iterdir(), key=lambda entry: entry.name):
        path = prefix + entry.name
        status = entry.lstat()
        if stat.S_ISDIR(status.st_mode):
            yield path, Directory()
            yield from _look(entry, f"{path}/")
        elif stat.S_ISLNK(status.st_mode):
            yield path, Link(os.readlink(entry))  # noqa: PTH115  Path.readlink does not give the text as it stands
        elif stat.S_ISREG(status.st_mode):
            yield path, File(entry.read_bytes(), status.st_mtime_ns / 1e9)
        else:
            mode = stat.filemode(status.st_mode)
            raise RecordError(f"{entry} is a {mode}; there must be only files, directories and links")


_Signature = tuple[int, ...]


def _signature(status: os.stat_result) -> _Signature:
    """Changes whenever a file is changed, replaced or touched."""
    return (
        status.st_ino,
        status.st_mode,
        status.st_nlink,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


class Disk:
    """A directory that is made equal to one state after the other; what the next one has alike is left as it is.

    Args:
        root: its parent must be there. What is in it already is removed by the first ``put``.
    """

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)
        self._written: dict[str, tuple[Node, _Signature]] = {}  # files and links

    def put(self, visible: Visible) -> None:
        """Make the directory equal to ``visible``: names, kinds, bytes, times (``modified_s``); modes 0600 and 0700.

        Raises:
            OSError: it cannot be written.
        """
        self._require_root()
        times = {path: _ns(time_s) for path, time_s in modified_s(visible).items()}
        there = self._keep(visible, times)
        for path, node in visible.items():
            if path not in there:
                self._make(path, node, times[path])
        for path, node in ("", Directory()), *visible.items():
            if isinstance(node, Directory):
                full = self._full(path)
                os.utime(full, ns=(times[path], times[path]))

    def distrust(self, paths: Iterable[str]) -> None:
        """Write these anew next time, however untouched they look: somebody had them open for writing."""
        for path in paths:
            self._written.pop(path, None)

    def _keep(self, visible: Visible, times: dict[str, int]) -> set[str]:
        """Remove what is not as it should be; returns what may stay."""
        kept: set[str] = set()
        pending = [""]
        while pending:
            parent = pending.pop()
            with os.scandir(self._full(parent)) as entries:
                for entry in entries:
                    path = f"{parent}/{entry.name}" if parent else entry.name
                    node = visible.get(path)
                    if entry.is_dir(follow_symlinks=False):
                        if isinstance(node, Directory):
                            self._require_mode(entry)
                            kept.add(path)
                            pending.append(path)
                        else:
                            self._remove_directory(entry.path)
                    elif node is not None and self._is_as_written(path, node, times[path], entry):
                        kept.add(path)
                    else:
                        Path(entry).unlink()
        return kept

    def _is_as_written(self, path: str, node: Node, time_ns: int, entry: os.DirEntry[str]) -> bool:
        written, signature = self._written.get(path, (None, ()))
        if written is None or signature != _signature(entry.stat(follow_symlinks=False)):
            return False
        if isinstance(node, File) and isinstance(written, File):
            return node.digest == written.digest and _ns(written.t_s) == time_ns
        return isinstance(node, Link) and node == written

    def _make(self, path: str, node: Node, time_ns: int) -> None:
        full = self._full(path)
        match node:
            case Directory():
                Path(full).mkdir(_DIRECTORY_MODE)
                return
            case Link(text):
                Path(full).symlink_to(text)
            case File(data):
                fd = os.open(full, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
                try:
                    left = memoryview(data)
                    while left:
                        left = left[os.write(fd, left) :]
                    os.utime(fd, ns=(time_ns, time_ns))
                finally:
                    os.close(fd)
        self._written[path] = (node, _signature(os.lstat(full)))

    def _require_root(self) -> None:
        root = Path(self._root)
        if root.is_symlink() or not root.is_dir():
            root.unlink(missing_ok=True)
            root.mkdir()
        root.chmod(_DIRECTORY_MODE)

    @staticmethod
    def _require_mode(entry: os.DirEntry[str]) -> None:
        if stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode) != _DIRECTORY_MODE:
            Path(entry).chmod(_DIRECTORY_MODE)

    @staticmethod
    def _remove_directory(full: str) -> None:
        for directory, _, _ in os.walk(full):
            Path(directory).chmod(_DIRECTORY_MODE)
        shutil.rmtree(full)

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root
