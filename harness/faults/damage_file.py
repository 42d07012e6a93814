"""A file of a finished checkpoint is no longer what was written."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from harness.faults.files import FilesFault, checkpoints_in

PAGE_BYTES = 4096


@dataclass(frozen=True, kw_only=True)
class DamageFile(FilesFault):
    """In a finished checkpoint one file is damaged: the bit in its middle inverted, the page around its middle zeroed,
    the file emptied, removed, or what it is in the checkpoint before.

    Attributes:
        file: its name in the checkpoint's directory, such as model.pt or COMPLETE.
        how: bit, page (4096 bytes), empty, missing or stale (as in the checkpoint before).
        checkpoint: the step of the checkpoint; left out: the newest at that time.
    """

    certifies: ClassVar = "a checkpoint that was damaged after it was done is found out, and an older one is loaded"
    does_not_certify: ClassVar = "that damage is found before it matters: nobody reads a checkpoint until the next load"
    at_stake: ClassVar = ("OnlyCompleteLoads", "NewestCompleteLoads")

    drawn: ClassVar = {
        "file": ("model.pt", "MANIFEST.json", "COMPLETE"),
        "how": ("bit", "page", "empty", "missing", "stale"),
    }

    kind: Literal["damage_file"] = "damage_file"
    file: str
    how: Literal["bit", "page", "empty", "missing", "stale"] = "bit"
    checkpoint: int | None = None

    def problems(self) -> list[tuple[str, str]]:
        found = []
        if self.file in ("", ".", "..") or "/" in self.file or "\0" in self.file:
            found.append(("file", "must be the name of a file in a checkpoint's directory, such as model.pt"))
        if self.checkpoint is not None and self.checkpoint < 0:
            found.append(("checkpoint", "must be at least 0: it is a step"))
        return found

    def damage(self, root: Path) -> Mapping[str, Any]:
        there = checkpoints_in(root)
        step = max(there, default=None) if self.checkpoint is None else self.checkpoint
        if step is None or step not in there:
            wanted = "" if step is None else f" of step {step}"
            return {"problem": f"there is no checkpoint{wanted} in {root}; there are: {_listed(there)}"}
        file = there[step] / self.file
        if not file.is_file():
            names = ", ".join(sorted(path.name for path in there[step].iterdir()))
            return {"problem": f"there is no file {self.file} in {there[step].name}; there are: {names}"}
        older = max((other for other in there if other < step), default=None)
        stale = None if older is None else there[older] / self.file
        if self.how == "stale" and (stale is None or not stale.is_file()):
            return {"problem": f"no checkpoint before step {step} has a {self.file}"}
        before = file.read_bytes()
        if self.how == "missing":
            file.unlink()
            return {"damaged": file.parent.name, "before": _told(before), "after": "missing"}
        data = stale.read_bytes() if self.how == "stale" and stale is not None else self._damaged(before)
        file.write_bytes(data)
        return {"damaged": file.parent.name, "before": _told(before), "after": _told(data)}

    def _damaged(self, data: bytes) -> bytes:
        if self.how == "empty" or not data:
            return b""
        middle = len(data) // 2
        if self.how == "page":
            start = middle // PAGE_BYTES * PAGE_BYTES
            page = data[start : start + PAGE_BYTES]
            return data[:start] + bytes(len(page)) + data[start + PAGE_BYTES :]
        return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def _told(data: bytes) -> str:
    return f"{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()[:16]}"


def _listed(there: Mapping[int, Path]) -> str:
    return ", ".join(path.name for path in there.values()) or "none"
