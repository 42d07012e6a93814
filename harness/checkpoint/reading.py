"""One candidate of a load: what this rank finds, what all ranks make of it, and what happens to those that failed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.checkpoint import files, judge, layout, parts
from harness.checkpoint.judge import Entry
from harness.checkpoint.owner import Claim
from harness.quoted import quoted


@dataclass(frozen=True, kw_only=True)
class Found:
    """A candidate as one rank found it.

    Attributes:
        refusal: why this job must not load it although it is complete; None if it may.
        shared, own: its values, where it is complete and may be loaded.
    """

    entry: Entry
    refusal: str | None = None
    shared: dict[str, Any] = field(default_factory=dict)
    own: dict[str, Any] = field(default_factory=dict)

    def ballot(self) -> dict[str, Any]:
        return {"entry": asdict(self.entry), "refusal": self.refusal}


def read_candidate(root: Path, name: str, rank: int, world_size: int, config: Mapping[str, Any]) -> Found:
    """Verify the candidate ``name`` and read what ``rank`` needs of it.

    A rank reads the shared files and its own; together the ranks read everything.

    Raises:
        OSError: the root itself cannot be read; anything wrong below it is a verdict.
    """
    mine = layout.own_file(rank)
    with files.open_root(root) as root_fd:
        entry = judge.judge(root_fd, name, mine=lambda f: f.name == mine or not layout.is_own_file(f.name))
        if entry.verdict != "complete":
            return Found(entry=entry)
        try:
            with files.open_directory(root_fd, name) as dir_fd:
                manifest, _ = judge.load_manifest(dir_fd, entry.step)
                if refusal := why_not_for(manifest, world_size, config):
                    return Found(entry=entry, refusal=refusal)
                own = parts.load_part(dir_fd, mine)
                if not isinstance(own, dict):
                    raise layout.Damaged(f"{mine} holds {type(own).__name__}, not a dict")
                shared = {
                    f.name.removesuffix(".pt"): parts.load_part(dir_fd, f.name)
                    for f in manifest.files
                    if not layout.is_own_file(f.name)
                }
        except (layout.Damaged, OSError) as error:
            return Found(entry=replace(entry, verdict="corrupt", reason=str(error), manifest=None))
    return Found(entry=entry, shared=shared, own=own)


def why_not_for(manifest: layout.Manifest, world_size: int, config: Mapping[str, Any]) -> str | None:
    """Why a job of this size and config must not load the checkpoint, with the cure; None if it may."""
    if manifest.world_size != world_size:
        return (
            f"it was saved by {manifest.world_size} ranks and this job has {world_size}: "
            f"start it with {manifest.world_size} ranks, or give another directory"
        )
    absent = "absent"
    for name in sorted(manifest.config.keys() | config.keys()):
        saved, asked = manifest.config.get(name, absent), config.get(name, absent)
        if saved != asked:
            return (
                f"its config has {name} = {quoted(saved)} and this job has {quoted(asked)}: "
                "start it with the same config, or give another directory"
            )
    return None


def common_verdict(ballots: Sequence[Mapping[str, Any]]) -> tuple[Entry, str | None]:
    """What the ranks' ballots make together: the entry, and why it must not be loaded although it is complete.

    It is complete only if it is so on every rank, with the same manifest; else the first failing rank's verdict holds.
    """
    entries = [Entry(**ballot["entry"]) for ballot in ballots]
    for rank, entry in enumerate(entries):
        if entry.verdict != "complete":
            place = "" if len(entries) == 1 else f"on rank {rank}: "
            return replace(entry, reason=place + entry.reason), None
    if len({entry.manifest for entry in entries}) > 1:
        return replace(entries[0], verdict="corrupt", reason="the ranks see different manifests", manifest=None), None
    refusals = [ballot["refusal"] for ballot in ballots if ballot["refusal"] is not None]
    return entries[0], refusals[0] if refusals else None


def set_aside(root: Path, failed: Sequence[str], newer: Sequence[str], claim: Claim) -> None:
    """Rename what failed to ``.corrupt-`` and what a rollback passes over to ``.abandoned-``, durably."""
    with files.open_root(root) as root_fd:
        for prefix, names in ((".corrupt", failed), (".abandoned", newer)):
            for name in names:
                files.rename(root_fd, name, files.free_name(root_fd, f"{prefix}-{claim.attempt}-{name}"))
        os.fsync(root_fd)


def nothing_valid(root: Path, looked_at: Sequence[Entry], newer: Sequence[str], traces: Sequence[str]) -> str:
    """The text of the refusal when something is there and none of it may be loaded."""
    found = [f"{entry.name} is {entry.verdict}: {entry.reason}" for entry in looked_at]
    found += [f"{name} is newer than asked for" for name in newer]
    if not found:
        found = [f"{quoted(name)} is there" for name in traces[:5]]
    return (
        f"{root} has no checkpoint that may be loaded: {'; '.join(found)}. Nothing was changed. Restore a checkpoint, "
        "or give an empty directory to start from step 0"
    )
