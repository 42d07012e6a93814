"""What may become of a sound directory: one function a state, which damages ``root`` in place.

Every choice is fixed (the middle byte, the last third), so that a state is the same each time it is made. C and a
number name the crash states that this project was planned with.
"""

from __future__ import annotations

import dataclasses
import io
import os
import pickle
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.checkpoint import layout
from harness.checkpoint.layout import ATTEMPT, COMPLETE, LATEST, LOCK, MANIFEST

Damage = Callable[[Path], None]
STATES: dict[str, Damage] = {}

DEAD = "0-00000000000000aa"  # an attempt that this directory never heard of
NEWEST, OLDER, OLDEST = "step-15", "step-10", "step-5"
STAGING = f".step-20.tmp-{DEAD}"


def state(damage: Damage) -> Damage:
    STATES[damage.__name__.replace("_", "-")] = damage
    return damage


def make_state(name: str, sound: Path, root: Path) -> None:
    """Make ``root`` a copy of the directory ``sound``, then bring it into state ``name``."""
    shutil.copytree(sound, root, symlinks=True)
    STATES[name](root)


# The marker


@state
def sound(root: Path) -> None:
    """Nothing is wrong."""


@state
def no_complete(root: Path) -> None:
    (root / NEWEST / COMPLETE).unlink()  # C13


@state
def complete_empty(root: Path) -> None:
    os.truncate(root / NEWEST / COMPLETE, 0)  # C14


@state
def complete_torn(root: Path) -> None:
    os.truncate(root / NEWEST / COMPLETE, 100)  # C15


@state
def complete_of_another_manifest(root: Path) -> None:
    shutil.copy(root / OLDER / COMPLETE, root / NEWEST / COMPLETE)  # C16


@state
def complete_is_a_word(root: Path) -> None:
    (root / NEWEST / COMPLETE).write_text("done\n")


# The manifest


@state
def manifest_missing(root: Path) -> None:
    (root / NEWEST / MANIFEST).unlink()  # C11


@state
def manifest_empty(root: Path) -> None:
    os.truncate(root / NEWEST / MANIFEST, 0)  # C12


@state
def manifest_torn(root: Path) -> None:
    os.truncate(root / NEWEST / MANIFEST, 400)  # C12


@state
def manifest_bit_flipped(root: Path) -> None:
    _flip(root / NEWEST / MANIFEST)  # C31


@state
def manifest_lists_too_little(root: Path) -> None:
    """Valid JSON, signed, but rank 1's file is not in it (C12)."""
    _resign(root / NEWEST, lambda files: [f for f in files if f.name != "rank-1.pt"])


@state
def manifest_names_lead_out(root: Path) -> None:
    """Signed, and its names would read and write outside the directory."""
    outside = root.parent / "outside.pt"
    outside.write_bytes((root / NEWEST / "model.pt").read_bytes())
    _resign(
        root / NEWEST, lambda files: [_renamed(f, "../../outside.pt") if f.name == "model.pt" else f for f in files]
    )


@state
def manifest_is_deeply_nested(root: Path) -> None:
    (root / NEWEST / MANIFEST).write_text("[" * 100_000)


# The data


@state
def data_truncated(root: Path) -> None:
    path = root / NEWEST / "model.pt"
    os.truncate(path, path.stat().st_size // 3)  # C05


@state
def data_empty(root: Path) -> None:
    os.truncate(root / NEWEST / "optimizer.pt", 0)  # C03


@state
def data_zeroed(root: Path) -> None:
    path = root / NEWEST / "model.pt"
    path.write_bytes(bytes(path.stat().st_size))  # C18


@state
def data_zero_tail(root: Path) -> None:
    path = root / NEWEST / "rank-0.pt"
    data = path.read_bytes()
    path.write_bytes(data[:512] + bytes(len(data) - 512))  # C06


@state
def data_bit_flipped(root: Path) -> None:
    _flip(root / NEWEST / "model.pt")  # C31


@state
def data_too_long(root: Path) -> None:
    with (root / NEWEST / "progress.pt").open("ab") as file:
        file.write(b"\0")


@state
def shard_missing(root: Path) -> None:
    (root / NEWEST / "rank-1.pt").unlink()  # C08, C17


@state
def shard_of_another_step(root: Path) -> None:
    shutil.copy(root / OLDER / "rank-1.pt", root / NEWEST / "rank-1.pt")  # C09, C10


@state
def file_not_listed(root: Path) -> None:
    shutil.copy(root / NEWEST / "rank-1.pt", root / NEWEST / "rank-2.pt")  # C30


@state
def staging_moved_into_final(root: Path) -> None:
    shutil.copytree(root / OLDER, root / NEWEST / STAGING)  # C23: what shutil.move does when the target exists


@state
def step_copied_to_another_name(root: Path) -> None:
    shutil.copytree(root / NEWEST, root / "step-20")


@state
def two_newest_damaged(root: Path) -> None:
    _flip(root / NEWEST / "model.pt")
    (root / OLDER / "optimizer.pt").unlink()


# The hint


@state
def latest_missing(root: Path) -> None:
    (root / LATEST).unlink()  # C24


@state
def latest_dangling(root: Path) -> None:
    _point_latest(root, "step-40")


@state
def latest_ahead(root: Path) -> None:
    """It leads to a newer one that is not complete."""
    shutil.copytree(root / NEWEST, root / "step-20")
    (root / "step-20" / COMPLETE).unlink()
    _point_latest(root, "step-20")


@state
def latest_behind(root: Path) -> None:
    _point_latest(root, OLDEST)


@state
def latest_leads_out(root: Path) -> None:
    _point_latest(root, "/")


@state
def latest_is_an_empty_file(root: Path) -> None:
    (root / LATEST).unlink()
    (root / LATEST).touch()


# What a save or a retention left behind


@state
def staging_empty(root: Path) -> None:
    (root / STAGING).mkdir()  # C02


@state
def staging_complete_but_not_renamed(root: Path) -> None:
    shutil.copytree(root / NEWEST, root / STAGING)  # C19


@state
def staging_and_final(root: Path) -> None:
    shutil.copytree(root / NEWEST, root / f".step-15.tmp-{DEAD}")  # C21


@state
def half_deleted_in_place(root: Path) -> None:
    """A careless program deleted files before the marker (C26)."""
    for name in ("model.pt", "optimizer.pt"):
        (root / NEWEST / name).unlink()


@state
def half_deleted_by_retention(root: Path) -> None:
    trash = root / f".trash-{DEAD}-step-5"
    (root / OLDEST).rename(trash)
    (trash / COMPLETE).unlink()


@state
def last_good_deleted(root: Path) -> None:
    """Retention ran ahead: the old ones are gone, the new one never became complete (C27)."""
    for name in (OLDEST, OLDER):
        shutil.rmtree(root / name)
    (root / NEWEST / COMPLETE).unlink()


@state
def abandoned_after_rollback(root: Path) -> None:
    (root / NEWEST).rename(root / f".abandoned-{DEAD}-step-15")  # C28


@state
def drafts_of_latest_and_attempt(root: Path) -> None:
    (root / layout.LATEST_DRAFT).symlink_to("step-40")
    (root / layout.ATTEMPT_DRAFT).write_text("{")


@state
def attempt_torn(root: Path) -> None:
    os.truncate(root / ATTEMPT, 10)


@state
def times_reversed(root: Path) -> None:
    for age, name in enumerate((OLDEST, OLDER, NEWEST)):
        os.utime(root / name, (1e9 - age, 1e9 - age))  # C39


# Foreign names


@state
def foreign_names(root: Path) -> None:
    """A backup, other programs' numbering, digits that are not ASCII, a newline: no number of the store's (C29)."""
    for name in (
        "step-100.backup",
        "step-0100",
        "step-\uff11\uff10\uff10",
        "Step-100",
        "step-+100",
        "step-100\n",
        "step-",
        "step-1e2",
    ):
        shutil.copytree(root / NEWEST, root / name)
    (root / "lost+found").mkdir()


@state
def step_too_long_for_a_number(root: Path) -> None:
    (root / f"step-{10**18}").mkdir()


@state
def step_far_ahead_and_empty(root: Path) -> None:
    (root / f"step-{10**18 - 1}").mkdir()


@state
def file_named_like_a_step(root: Path) -> None:
    (root / "step-20").write_text("not a directory")


# Nothing to load


@state
def nothing_there(root: Path) -> None:
    shutil.rmtree(root)  # C01


@state
def empty(root: Path) -> None:
    _keep_only(root, ())


@state
def only_bookkeeping(root: Path) -> None:
    _keep_only(root, (LOCK, ATTEMPT))


@state
def only_an_unpublished_save(root: Path) -> None:
    """A job that died in its first save."""
    (root / NEWEST).rename(root / STAGING)
    _keep_only(root, (LOCK, ATTEMPT, STAGING))


@state
def only_lost_and_found(root: Path) -> None:
    """A fresh file system."""
    _keep_only(root, ())
    (root / "lost+found").mkdir()


@state
def nothing_valid(root: Path) -> None:
    for name in (OLDEST, OLDER, NEWEST):
        (root / name / COMPLETE).unlink()  # C40


@state
def only_a_backup(root: Path) -> None:
    (root / NEWEST).rename(root / "step-15.backup")
    _keep_only(root, ("step-15.backup",))


@state
def only_quarantined(root: Path) -> None:
    name = f".corrupt-{DEAD}-step-15"
    (root / NEWEST).rename(root / name)
    _keep_only(root, (name,))


@state
def only_latest(root: Path) -> None:
    _keep_only(root, (LATEST,))


@state
def only_trash(root: Path) -> None:
    name = f".trash-{DEAD}-step-15"
    (root / NEWEST).rename(root / name)
    _keep_only(root, (name,))


# Hostile


class _Payload:
    """Runs a command when it is unpickled: it makes the file ``payload-ran`` beside the directory."""

    def __init__(self, proof: Path) -> None:
        self._proof = proof

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, ...]]:
        return os.mkdir, (str(self._proof),)


@state
def pickle_payload(root: Path) -> None:
    """Signed, and one of its files runs code for whoever unpickles it."""
    payload = pickle.dumps(_Payload(root.parent / "payload-ran"))
    (root / NEWEST / "model.pt").write_bytes(payload)
    _resign(root / NEWEST)


@state
def own_part_is_no_dict(root: Path) -> None:
    import torch

    buffer = io.BytesIO()
    torch.save([1, 2], buffer)
    (root / NEWEST / "rank-1.pt").write_bytes(buffer.getvalue())
    _resign(root / NEWEST)


@state
def shard_links_out(root: Path) -> None:
    """The very bytes that the manifest asks for, but behind a link."""
    path = root / NEWEST / "model.pt"
    path.rename(root.parent / "outside.pt")
    path.symlink_to("../../outside.pt")


@state
def step_links_out(root: Path) -> None:
    (root / NEWEST).rename(root.parent / "step-15-outside")
    (root / NEWEST).symlink_to("../step-15-outside")


@state
def shard_is_a_fifo(root: Path) -> None:
    """Whoever opens it waits for ever."""
    (root / NEWEST / "model.pt").unlink()
    os.mkfifo(root / NEWEST / "model.pt")


@state
def complete_is_a_directory(root: Path) -> None:
    (root / NEWEST / COMPLETE).unlink()
    (root / NEWEST / COMPLETE).mkdir()


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _point_latest(root: Path, target: str) -> None:
    (root / LATEST).unlink()
    (root / LATEST).symlink_to(target)


def _keep_only(root: Path, names: Sequence[str]) -> None:
    for path in root.iterdir():
        if path.name not in names:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _renamed(file: layout.FileRecord, name: str) -> layout.FileRecord:
    return dataclasses.replace(file, name=name)


def _resign(
    directory: Path,
    change: Callable[[list[layout.FileRecord]], list[layout.FileRecord]] = lambda files: files,
) -> None:
    """Make manifest and marker fit the data as it is now: damage that no digest shows."""
    manifest = layout.parse_manifest((directory / MANIFEST).read_bytes())
    files = [
        dataclasses.replace(f, size_bytes=len(data), sha256=layout.digest(data))
        for f in manifest.files
        for data in [(directory / f.name).read_bytes()]
    ]
    manifest = dataclasses.replace(manifest, files=tuple(sorted(change(files))))
    (directory / MANIFEST).write_bytes(manifest.to_bytes())
    marker = layout.marker_text(manifest, layout.digest(manifest.to_bytes()))
    (directory / COMPLETE).write_bytes(marker)
