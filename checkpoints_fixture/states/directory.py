"""What a save, a retention or a person left in the directory, and directories with nothing to load."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from checkpoints_fixture.states.base import DEAD, NEWEST, OLDER, OLDEST, STAGING, keep_only, point_latest, state
from harness.checkpoint import layout
from harness.checkpoint.layout import ATTEMPT, COMPLETE, LATEST, LOCK

# The hint


@state("C24")
def latest_missing(root: Path) -> None:
    (root / LATEST).unlink()


@state("C24")
def latest_dangling(root: Path) -> None:
    point_latest(root, "step-40")


@state("C24")
def latest_torn(root: Path) -> None:
    point_latest(root, "step-1")


@state("C24")
def latest_ahead(root: Path) -> None:
    """It leads to a newer one that is not complete."""
    shutil.copytree(root / NEWEST, root / "step-20")
    (root / "step-20" / COMPLETE).unlink()
    point_latest(root, "step-20")


@state("C24")
def latest_behind(root: Path) -> None:
    point_latest(root, OLDEST)


@state()
def latest_leads_out(root: Path) -> None:
    point_latest(root, "/")


@state("C24")
def latest_is_an_empty_file(root: Path) -> None:
    (root / LATEST).unlink()
    (root / LATEST).touch()


# What a save or a retention left behind


@state("C02")
def staging_empty(root: Path) -> None:
    (root / STAGING).mkdir()


@state("C19", "C20")
def staging_complete_but_not_renamed(root: Path) -> None:
    shutil.copytree(root / NEWEST, root / STAGING)


@state("C04")
def staging_half_written(root: Path) -> None:
    """The save died between two writes."""
    shutil.copytree(root / NEWEST, root / STAGING)
    for name in (COMPLETE, layout.MANIFEST, "rank-1.pt"):
        (root / STAGING / name).unlink()
    os.truncate(root / STAGING / "model.pt", 4096)


@state("C20")
def published_and_lost(root: Path) -> None:
    """The directory's entry was not durable: both its names are gone."""
    shutil.rmtree(root / NEWEST)


@state("C21")
def staging_and_final(root: Path) -> None:
    shutil.copytree(root / NEWEST, root / f".step-15.tmp-{DEAD}")


@state("C26")
def half_deleted_in_place(root: Path) -> None:
    """A careless program deleted files before the marker."""
    for name in ("model.pt", "optimizer.pt"):
        (root / NEWEST / name).unlink()


@state("C26")
def half_deleted_by_retention(root: Path) -> None:
    trash = root / f".trash-{DEAD}-step-5"
    (root / OLDEST).rename(trash)
    (trash / COMPLETE).unlink()


@state("C27")
def last_good_deleted(root: Path) -> None:
    """Retention ran ahead: the old ones are gone, the new one never became complete."""
    for name in (OLDEST, OLDER):
        shutil.rmtree(root / name)
    (root / NEWEST / COMPLETE).unlink()


@state("C28")
def abandoned_after_rollback(root: Path) -> None:
    (root / NEWEST).rename(root / f".abandoned-{DEAD}-step-15")


@state()
def drafts_of_latest_and_attempt(root: Path) -> None:
    (root / layout.LATEST_DRAFT).symlink_to("step-40")
    (root / layout.ATTEMPT_DRAFT).write_text("{")


@state()
def attempt_torn(root: Path) -> None:
    os.truncate(root / ATTEMPT, 10)


@state("C39")
def times_reversed(root: Path) -> None:
    for age, name in enumerate((OLDEST, OLDER, NEWEST)):
        os.utime(root / name, (1e9 - age, 1e9 - age))


# Foreign names


@state("C29")
def foreign_names(root: Path) -> None:
    """A backup, other programs' numbering, digits that are not ASCII, a newline: no number of the store's."""
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


@state()
def step_too_long_for_a_number(root: Path) -> None:
    (root / f"step-{10**18}").mkdir()


@state()
def step_far_ahead_and_empty(root: Path) -> None:
    (root / f"step-{10**18 - 1}").mkdir()


@state()
def file_named_like_a_step(root: Path) -> None:
    (root / "step-20").write_text("not a directory")


# Nothing to load


@state("C01")
def nothing_there(root: Path) -> None:
    shutil.rmtree(root)


@state()
def empty(root: Path) -> None:
    keep_only(root, ())


@state()
def only_bookkeeping(root: Path) -> None:
    keep_only(root, (LOCK, ATTEMPT))


@state()
def only_an_unpublished_save(root: Path) -> None:
    """A job that died in its first save."""
    (root / NEWEST).rename(root / STAGING)
    keep_only(root, (LOCK, ATTEMPT, STAGING))


@state()
def only_lost_and_found(root: Path) -> None:
    """A fresh file system."""
    keep_only(root, ())
    (root / "lost+found").mkdir()


@state("C40")
def nothing_valid(root: Path) -> None:
    for name in (OLDEST, OLDER, NEWEST):
        (root / name / COMPLETE).unlink()


@state()
def only_a_backup(root: Path) -> None:
    (root / NEWEST).rename(root / "step-15.backup")
    keep_only(root, ("step-15.backup",))


@state()
def only_quarantined(root: Path) -> None:
    name = f".corrupt-{DEAD}-step-15"
    (root / NEWEST).rename(root / name)
    keep_only(root, (name,))


@state()
def only_latest(root: Path) -> None:
    keep_only(root, (LATEST,))


@state()
def only_trash(root: Path) -> None:
    name = f".trash-{DEAD}-step-15"
    (root / NEWEST).rename(root / name)
    keep_only(root, (name,))
