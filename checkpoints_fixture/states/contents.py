"""What is wrong inside one checkpoint: marker, manifest, data."""

from __future__ import annotations

import os
import shutil
import struct
from hashlib import sha256
from pathlib import Path

from checkpoints_fixture.states.base import NEWEST, OLDER, STAGING, flip, renamed, resign, state
from harness.checkpoint.layout import COMPLETE, MANIFEST

# The marker


@state()
def sound(root: Path) -> None:
    """Nothing is wrong."""


@state("C13")
def no_complete(root: Path) -> None:
    (root / NEWEST / COMPLETE).unlink()


@state("C14")
def complete_empty(root: Path) -> None:
    os.truncate(root / NEWEST / COMPLETE, 0)


@state("C15")
def complete_torn(root: Path) -> None:
    os.truncate(root / NEWEST / COMPLETE, 100)


@state("C16")
def complete_of_another_manifest(root: Path) -> None:
    shutil.copy(root / OLDER / COMPLETE, root / NEWEST / COMPLETE)


@state("C25")
def complete_still_a_draft(root: Path) -> None:
    """The old marker was unlinked, and the new one never got its name."""
    (root / NEWEST / COMPLETE).rename(root / NEWEST / f"{COMPLETE}.tmp")


@state("C31")
def complete_bit_flipped(root: Path) -> None:
    flip(root / NEWEST / COMPLETE)


@state()
def complete_is_a_word(root: Path) -> None:
    (root / NEWEST / COMPLETE).write_text("done\n")


# The manifest


@state("C11")
def manifest_missing(root: Path) -> None:
    (root / NEWEST / MANIFEST).unlink()


@state("C11")
def manifest_and_complete_missing(root: Path) -> None:
    for name in (MANIFEST, COMPLETE):
        (root / NEWEST / name).unlink()


@state("C12")
def manifest_empty(root: Path) -> None:
    os.truncate(root / NEWEST / MANIFEST, 0)


@state("C12")
def manifest_torn(root: Path) -> None:
    os.truncate(root / NEWEST / MANIFEST, 400)


@state("C31")
def manifest_bit_flipped(root: Path) -> None:
    flip(root / NEWEST / MANIFEST)


@state("C12")
def manifest_lists_too_little(root: Path) -> None:
    """Valid JSON, signed, but rank 1's file is not in it."""
    resign(root / NEWEST, lambda files: [f for f in files if f.name != "rank-1.pt"])


@state()
def manifest_names_lead_out(root: Path) -> None:
    """Signed, and its names would read and write outside the directory."""
    outside = root.parent / "outside.pt"
    outside.write_bytes((root / NEWEST / "model.pt").read_bytes())
    resign(root / NEWEST, lambda files: [renamed(f, "../../outside.pt") if f.name == "model.pt" else f for f in files])


@state()
def manifest_is_deeply_nested(root: Path) -> None:
    (root / NEWEST / MANIFEST).write_text("[" * 100_000)


# The data


@state("C05")
def data_truncated(root: Path) -> None:
    path = root / NEWEST / "model.pt"
    os.truncate(path, path.stat().st_size // 3)


@state("C05")
def data_cut_at_a_block(root: Path) -> None:
    os.truncate(root / NEWEST / "optimizer.pt", 4096)


@state("C05")
def data_cut_at_a_sector(root: Path) -> None:
    os.truncate(root / NEWEST / "rank-0.pt", 512)


@state("C03")
def data_empty(root: Path) -> None:
    os.truncate(root / NEWEST / "optimizer.pt", 0)


@state("C18")
def data_zeroed(root: Path) -> None:
    path = root / NEWEST / "model.pt"
    path.write_bytes(bytes(path.stat().st_size))


@state("C06")
def data_zero_tail(root: Path) -> None:
    path = root / NEWEST / "rank-0.pt"
    data = path.read_bytes()
    path.write_bytes(data[:512] + bytes(len(data) - 512))


@state("C07")
def data_garbage_sector(root: Path) -> None:
    path = root / NEWEST / "optimizer.pt"
    data = path.read_bytes()
    garbage = b"".join(sha256(bytes([number])).digest() for number in range(16))
    path.write_bytes(data[:4096] + garbage + data[4096 + len(garbage) :])


@state("C31")
def data_header_flipped(root: Path) -> None:
    path = root / NEWEST / "model.pt"
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])


@state("C31")
def data_bit_flipped(root: Path) -> None:
    flip(root / NEWEST / "model.pt")


@state()
def data_too_long(root: Path) -> None:
    with (root / NEWEST / "progress.pt").open("ab") as file:
        file.write(b"\0")


@state("C08", "C17")
def shard_missing(root: Path) -> None:
    (root / NEWEST / "rank-1.pt").unlink()


@state("C09")
def shard_of_an_older_attempt(root: Path) -> None:
    """Of the same step and size, with the values that an attempt before this one had."""
    path = root / NEWEST / "model.pt"
    data, now, before = path.read_bytes(), struct.pack("<f", 15.0), struct.pack("<f", 14.5)
    if data.count(now) < 64 * 32:
        raise ValueError(f"{path} does not hold the weights that sound.py gives it")
    path.write_bytes(data.replace(now, before))


@state("C10")
def shard_of_another_step(root: Path) -> None:
    shutil.copy(root / OLDER / "rank-1.pt", root / NEWEST / "rank-1.pt")


@state("C10")
def half_of_another_step(root: Path) -> None:
    for name in ("model.pt", "optimizer.pt", "rank-0.pt"):
        shutil.copy(root / OLDER / name, root / NEWEST / name)


@state("C30")
def file_not_listed(root: Path) -> None:
    shutil.copy(root / NEWEST / "rank-1.pt", root / NEWEST / "rank-2.pt")


@state("C23")
def staging_moved_into_final(root: Path) -> None:
    shutil.copytree(root / OLDER, root / NEWEST / STAGING)  # what shutil.move does when the target exists


@state()
def step_copied_to_another_name(root: Path) -> None:
    shutil.copytree(root / NEWEST, root / "step-20")


@state()
def two_newest_damaged(root: Path) -> None:
    flip(root / NEWEST / "model.pt")
    (root / OLDER / "optimizer.pt").unlink()
