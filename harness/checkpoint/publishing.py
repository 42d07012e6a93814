"""Rank 0's part of a save: the hidden directory, manifest, marker, final name, and the link for people."""

from __future__ import annotations

import os
from pathlib import Path

from harness.checkpoint import files, judge, layout, owner, points, retention
from harness.checkpoint.owner import Claim


def stage(root: Path, step: int, claim: Claim) -> str:
    """Make the hidden directory that the ranks of this save write to, durably; returns its name."""
    name = layout.staging_name(step, claim.attempt)
    with files.open_root(root) as root_fd:
        points.around("ckpt.stage.mkdir", _make_directory, root_fd, name)
    return name


def _make_directory(root_fd: int, name: str) -> None:
    os.mkdir(name, 0o700, dir_fd=root_fd)
    os.fsync(root_fd)


def publish(root: Path, staging: str, manifest: layout.Manifest, claim: Claim) -> str:
    """Complete the hidden directory and give it its final name, each durably; returns the manifest's sha256.

    Raises:
        owner.TakenError: another attempt has become the directory's writer.
        OSError: the file system refused, or something of the final name is there.
    """
    data = manifest.to_bytes()
    manifest_sha256 = layout.digest(data)
    with files.open_root(root) as root_fd:
        with files.open_directory(root_fd, staging) as dir_fd:
            files.write_new(dir_fd, layout.MANIFEST_DRAFT, data, "ckpt.manifest")
            points.around("ckpt.manifest.rename", _name_manifest, dir_fd)
            files.write_new(dir_fd, layout.COMPLETE, layout.marker_text(manifest, manifest_sha256), "ckpt.complete")
            os.fsync(dir_fd)
        owner.check_fence(root_fd, claim)
        points.around("ckpt.publish.rename", files.rename, root_fd, staging, layout.step_name(manifest.step))
        points.around("ckpt.publish.fsync", os.fsync, root_fd)
    return manifest_sha256


def _name_manifest(dir_fd: int) -> None:
    files.rename(dir_fd, layout.MANIFEST_DRAFT, layout.MANIFEST)
    os.fsync(dir_fd)  # the data files' names with it


def same_again(root: Path, staging: str, manifest: layout.Manifest) -> str:
    """The step is saved already: a success if nothing differs, since what was acknowledged is never replaced.

    Returns:
        the sha256 of the manifest that is there.

    Raises:
        ValueError: what is there has other content.
    """
    with files.open_root(root) as root_fd:
        with files.open_directory(root_fd, layout.step_name(manifest.step)) as dir_fd:
            existing, manifest_sha256 = judge.load_manifest(dir_fd, manifest.step)
        if existing.files != manifest.files:
            raise ValueError(f"step {manifest.step} is saved already, with other content; save a step once")
        retention.delete(root_fd, staging)
    return manifest_sha256


def give_up(root: Path, step: int, claim: Claim, *, retract: bool) -> None:
    """Take away what a failed save has written, and nothing else.

    Args:
        retract: the step was not saved before, so what this attempt gave its final name was never acknowledged.

    Raises:
        OSError: not all of it could be taken away; what stays is no candidate of a load.
    """
    staging, final = layout.staging_name(step, claim.attempt), layout.step_name(step)
    with files.open_root(root) as root_fd:
        if retract and not files.exists(root_fd, staging) and _is_made_by(root_fd, final, claim):
            # Back to where it came from: a name of any other kind would say that there was a checkpoint once.
            files.rename(root_fd, final, staging)
            os.fsync(root_fd)  # else a power cut brings back what was reported as failed
        if files.exists(root_fd, staging):
            retention.delete(root_fd, staging)


def _is_made_by(root_fd: int, name: str, claim: Claim) -> bool:
    try:
        with files.open_directory(root_fd, name) as dir_fd:
            manifest, _ = judge.load_manifest(dir_fd, layout.step_of(name))
    except (layout.Damaged, OSError):
        return False
    return manifest.attempt == claim.attempt


def point_latest(root: Path, step: int) -> None:
    """Let ``latest`` lead people to the checkpoint of ``step``; no load ever reads it."""
    with files.open_root(root) as root_fd:
        points.around("ckpt.latest.write", _draft_latest, root_fd, layout.step_name(step))
        points.around("ckpt.latest.replace", _replace_latest, root_fd)


def _draft_latest(root_fd: int, target: str) -> None:
    if files.exists(root_fd, layout.LATEST_DRAFT):
        os.unlink(layout.LATEST_DRAFT, dir_fd=root_fd)  # of a process that died here
    os.symlink(target, layout.LATEST_DRAFT, dir_fd=root_fd)


def _replace_latest(root_fd: int) -> None:
    os.replace(layout.LATEST_DRAFT, layout.LATEST, src_dir_fd=root_fd, dst_dir_fd=root_fd)
    os.fsync(root_fd)
