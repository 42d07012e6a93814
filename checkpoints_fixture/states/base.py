"""How a state is declared, and the small damages that states are made of."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.checkpoint import layout
from harness.checkpoint.layout import COMPLETE, LATEST, MANIFEST

Damage = Callable[[Path], None]
STATES: dict[str, Damage] = {}
CODES: dict[str, list[str]] = {}  # crash state of the plan, such as "C13" -> the states that show it

DEAD = "0-00000000000000aa"  # an attempt that this directory never heard of
NEWEST, OLDER, OLDEST = "step-15", "step-10", "step-5"
STAGING = f".step-20.tmp-{DEAD}"


def state(*codes: str) -> Callable[[Damage], Damage]:
    """Declare a function as the state of its name, and as an example of the crash states ``codes``."""

    def declare(damage: Damage) -> Damage:
        name = damage.__name__.replace("_", "-")
        STATES[name] = damage
        for code in codes:
            CODES.setdefault(code, []).append(name)
        return damage

    return declare


def make_state(name: str, sound: Path, root: Path) -> None:
    """Make ``root`` a copy of the directory ``sound``, then bring it into state ``name``."""
    shutil.copytree(sound, root, symlinks=True)
    STATES[name](root)


def flip(path: Path) -> None:
    """Change one bit of the middle byte."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def point_latest(root: Path, target: str) -> None:
    (root / LATEST).unlink()
    (root / LATEST).symlink_to(target)


def keep_only(root: Path, names: Sequence[str]) -> None:
    for path in root.iterdir():
        if path.name not in names:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def link_outside(root: Path, path: Path) -> None:
    """Move ``path`` beside ``root``, and leave a link to it in its place."""
    outside = root.parent / f"outside-{path.name.lstrip('.')}"
    path.rename(outside)
    path.symlink_to(os.path.relpath(outside, path.parent))


def renamed(file: layout.FileRecord, name: str) -> layout.FileRecord:
    return dataclasses.replace(file, name=name)


def resign(
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
