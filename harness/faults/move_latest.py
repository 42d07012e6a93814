"""The link to the newest checkpoint leads elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from harness.faults.files import FilesFault, checkpoints_in

LATEST = "latest"
DRAFT = ".latest.tmp"


@dataclass(frozen=True, kw_only=True)
class MoveLatest(FilesFault):
    """``latest`` is removed, or leads to a checkpoint that is not there, to the oldest one, or to one that is newer
    than all and holds nothing: a directory that a crash left between its making and its first byte.

    Attributes:
        to: missing, dangling, behind (the oldest checkpoint) or ahead (an empty directory with the next step's name).
    """

    certifies: ClassVar = "what is loaded is decided by what is complete, wherever `latest` leads"
    does_not_certify: ClassVar = "that people or other programs that follow `latest` find the newest checkpoint"
    at_stake: ClassVar = ("NewestCompleteLoads",)

    kind: Literal["move_latest"] = "move_latest"
    to: Literal["missing", "dangling", "behind", "ahead"] = "dangling"

    def damage(self, root: Path) -> Mapping[str, Any]:
        link, there = root / LATEST, checkpoints_in(root)
        if not there:
            return {"problem": f"there is no checkpoint in {root} for {LATEST} to lead to"}
        before = f"to {link.readlink()}" if link.is_symlink() else "missing"
        if self.to == "missing":
            link.unlink(missing_ok=True)
            return {"damaged": None, "before": before, "after": "missing"}
        beyond = root / f"step-{max(there) + 1}"
        if self.to == "ahead":
            beyond.mkdir(mode=0o700)
        target = there[min(there)].name if self.to == "behind" else beyond.name
        draft = root / DRAFT
        draft.unlink(missing_ok=True)
        draft.symlink_to(target)
        draft.replace(link)
        return {"damaged": None, "before": before, "after": f"to {target}"}
