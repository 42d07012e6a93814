"""The checkpoint store's failpoints, and ``torch.save`` and ``torch.load`` for scripts that use nothing else.

The store reports through ``harness.checkpoint.points``. For ``torch.save`` to a path, or to a file that the script has
opened itself (as it must to call fsync), there are the failpoints ``torch.save:before``, ``torch.save:after`` and, as a
write that can be torn, ``torch.save``.
"""

from __future__ import annotations

import functools
import io
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import torch

from harness.checkpoint import points
from harness.faults.base import WriteFault
from harness.rank import foreign_saves
from harness.rank.recorder import Recorder
from harness.rank.resume import EarlierLaunches
from harness.rank.steps import Steps
from harness.rank.triggers import Triggers
from harness.wire import Kind


class StoreListener:
    """What ``harness.checkpoint`` tells and asks while it saves and loads."""

    def __init__(self, recorder: Recorder, triggers: Triggers, steps: Steps, earlier: EarlierLaunches) -> None:
        self._recorder, self._triggers, self._steps, self._earlier = recorder, triggers, steps, earlier
        self._is_inside = False

    @property
    def is_busy(self) -> bool:
        """Whether the store itself is saving or loading; a save that was given up ends with the next phase."""
        return self._is_inside and self._recorder.phase in ("save", "load")

    def reach(self, failpoint: str) -> None:
        if failpoint == "ckpt.save:before":
            self._is_inside = True
            self._steps.enter("save")
        elif failpoint == "ckpt.load:before":
            self._is_inside = True
            self._steps.enter("load")
        elif failpoint in ("ckpt.save:after", "ckpt.load:after"):
            self._is_inside = False
        if failpoint.endswith(":torn"):
            die()
        self._triggers.at_failpoint(failpoint)

    def part(self, name: str, size_bytes: int) -> int | None:
        return self._triggers.at_write(name, size_bytes)

    def tell(self, kind: Kind, step: int, **fields: Any) -> None:
        if kind is Kind.SAVE_START and (pending := self._steps.pending_ids()):
            fields["pending"] = pending
        self._recorder.emit(kind, **fields)
        if kind is Kind.LOAD and fields.get("loaded_step") is not None:
            self._steps.resumed(fields["loaded_step"], self._earlier.pending_ids(fields["path"]))


def die() -> NoReturn:
    """End this process as a power cut would end it: now, with what has been written so far."""
    os.kill(os.getpid(), 9)
    raise AssertionError("unreachable: SIGKILL cannot be caught")


def install(recorder: Recorder, triggers: Triggers, steps: Steps, earlier: EarlierLaunches) -> None:
    listener = StoreListener(recorder, triggers, steps, earlier)
    points.listener = listener
    save, load = torch.save, torch.load

    @functools.wraps(save)
    def seen_save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        path = _path(f)
        if listener.is_busy or path is None:
            save(obj, f, *args, **kwargs)
            return
        steps.enter("save")
        triggers.at_failpoint("torch.save:before")
        buffer = io.BytesIO()
        if (part_bytes := _part(triggers, obj, buffer, args, kwargs)) is not None:
            part = buffer.getbuffer()[:part_bytes]
            if hasattr(f, "write"):
                f.write(part)
                f.flush()
            else:
                Path(path).write_bytes(part)
            die()
        save(obj, f, *args, **kwargs)
        recorder.emit(Kind.FOREIGN_SAVE, by="torch.save", path=path)
        triggers.at_failpoint("torch.save:after")

    @functools.wraps(load)
    def seen_load(f: Any, *args: Any, **kwargs: Any) -> Any:
        if not listener.is_busy and not _is_part_of_a_pickle():
            steps.enter("load")
            recorder.emit(Kind.FOREIGN_LOAD, by="torch.load", path=_path(f))
        return load(f, *args, **kwargs)

    def _part(triggers: Triggers, obj: Any, buffer: io.BytesIO, args: Any, kwargs: Any) -> int | None:
        if all(fault.at.failpoint != "torch.save" for fault in triggers.waiting(WriteFault)):
            return None
        save(obj, buffer, *args, **kwargs)
        return triggers.at_write("torch.save", buffer.tell())

    torch.save, torch.load = seen_save, seen_load
    foreign_saves.install(recorder)


def _is_part_of_a_pickle() -> bool:
    """Whether torch.load was called for a tensor in a pickle: in what all_gather_object received, say."""
    return sys._getframe(2).f_code is torch.storage._load_from_bytes.__code__


def _path(f: Any) -> str | None:
    """Of a path, or of a file that was opened by one; None: what is saved goes elsewhere, into a message perhaps."""
    if isinstance(f, (str, os.PathLike)):
        return os.fspath(f)
    name = getattr(f, "name", None)
    if isinstance(name, (str, os.PathLike)) and isinstance(f, io.IOBase | tempfile._TemporaryFileWrapper):
        return os.fspath(name)
    return None
