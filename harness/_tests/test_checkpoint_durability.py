"""After a power cut only what was synced is there: nothing a step of the protocol relies on may still be unsynced.

The model is the weakest one in use: a file's bytes are durable after its own fsync, its name after its directory's.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.checkpoint import points
from harness.checkpoint.store import CheckpointStore
from harness.wire import Kind

DATA_NAMES = {"name of model.pt", "name of rank-0.pt"}
# failpoint -> what may still be unsynced there, below the root
RELIES_ON: dict[str, set[str]] = {
    "ckpt.manifest.write:before": {*DATA_NAMES, "name of MANIFEST.json.tmp"},
    "ckpt.manifest.rename:before": {*DATA_NAMES, "name of MANIFEST.json.tmp"},
    "ckpt.complete.write:before": {"name of COMPLETE"},
    "ckpt.publish.rename:before": set(),
    "ckpt.acknowledge:before": set(),
    "ckpt.retention.delete:before": set(),
}


class Disk:
    """Follows the system calls of this process, and looks at what is unsynced at the failpoints of ``RELIES_ON``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.unsynced: dict[str, Path] = {}  # what it is -> the file or directory whose fsync makes it durable
        self.deleted: list[str] = []
        self.seen: dict[str, set[str]] = {}
        for name in ("open", "write", "fsync", "rename", "replace", "mkdir", "symlink", "unlink"):
            monkeypatch.setattr(os, name, self._follow(getattr(os, name), getattr(self, f"_{name}")))

    def _follow(self, call: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
        def followed(*args: Any, **kwargs: Any) -> Any:
            result = call(*args, **kwargs)
            note(result, *args, **kwargs)
            return result

        return followed

    def _name(self, dir_fd: int | None, name: Any) -> None:
        if dir_fd is not None:  # else it is no call of the store's
            self.unsynced[f"name of {name}"] = _place(dir_fd)

    def _open(self, fd: int, path: Any, flags: int, *_: Any, dir_fd: int | None = None) -> None:
        if flags & os.O_EXCL:
            self._name(dir_fd, path)

    def _write(self, _: Any, fd: int, data: Any) -> None:
        self.unsynced[f"bytes of {_place(fd).name}"] = _place(fd)

    def _fsync(self, _: Any, fd: int) -> None:
        self.unsynced = {what: place for what, place in self.unsynced.items() if place != _place(fd)}

    def _rename(self, _: Any, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        self.unsynced.pop(f"name of {old}", None)
        self._name(dst_dir_fd, new)

    _replace = _rename

    def _mkdir(self, _: Any, name: Any, *__: Any, dir_fd: int | None = None) -> None:
        self._name(dir_fd, name)

    def _symlink(self, _: Any, target: str, name: str, *, dir_fd: int) -> None:
        self._name(dir_fd, name)

    def _unlink(self, _: Any, name: str, *, dir_fd: int) -> None:
        self.deleted.append(name)

    def reach(self, failpoint: str) -> None:
        if failpoint in RELIES_ON:
            self.seen[failpoint] = set(self.unsynced)

    def part(self, name: str, size_bytes: int) -> int | None:
        return None

    def tell(self, kind: Kind, step: int, **fields: Any) -> None: ...


def _place(fd: int) -> Path:
    return Path(f"/proc/self/fd/{fd}").readlink()


def test_nothing_that_a_step_relies_on_is_unsynced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    monkeypatch.setattr(points, "listener", disk)
    store = CheckpointStore(tmp_path / "checkpoints", keep_last=2)
    store.load()
    for step in (5, 10, 15):
        store.save(step, {"model": {"a": step}}, {"b": step})
        for failpoint, unsynced in disk.seen.items():
            assert unsynced <= RELIES_ON[failpoint], f"{failpoint} of step {step} comes before its sync"
    assert disk.seen.keys() == RELIES_ON.keys()
    assert disk.deleted == ["COMPLETE", "model.pt", "rank-0.pt", "MANIFEST.json"]
