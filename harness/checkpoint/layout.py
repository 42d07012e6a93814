"""Names, manifest and marker: what a checkpoint consists of on disk, and how it is read when nothing can be trusted.

Whatever these functions parse may be torn, stale or hostile: they return a value that is whole, or say what is wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from harness.quoted import quoted

FORMAT = "harness-checkpoint/1"
MANIFEST = "MANIFEST.json"
MANIFEST_DRAFT = "MANIFEST.json.tmp"
COMPLETE = "COMPLETE"
LATEST = "latest"
LOCK = ".lock"
ATTEMPT = "ATTEMPT"
LATEST_DRAFT, ATTEMPT_DRAFT = ".latest.tmp", ".ATTEMPT.tmp"  # one writer holds the lock: one name is enough
BOOKKEEPING = frozenset({LATEST, LOCK, ATTEMPT, LATEST_DRAFT, ATTEMPT_DRAFT})  # neither checkpoints nor foreign

MAX_MANIFEST_BYTES = 64 << 20  # 100,000 ranks fit; a hostile file must not fill the memory

_STEP = r"(?P<step>0|[1-9][0-9]{0,17})"  # ASCII digits, no leading zero: one name a step
_ATTEMPT = r"(?P<attempt>[0-9]{1,9}-[0-9a-f]{16})"
_FINAL_NAME = re.compile(rf"step-{_STEP}")
_STAGING_NAME = re.compile(rf"\.step-{_STEP}\.tmp-{_ATTEMPT}")
_TRASH_NAME = re.compile(rf"\.trash-{_ATTEMPT}-step-{_STEP}(-[0-9]+)?")
_PART_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_OWN_FILE = re.compile(r"rank-(0|[1-9][0-9]{0,8})\.pt")
_SHARED_FILE = re.compile(rf"{_PART_NAME.pattern}\.pt")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Damaged(ValueError):
    """Bytes that are not what they should be; the text says how."""


def step_name(step: int) -> str:
    return f"step-{step}"


def staging_name(step: int, attempt: str) -> str:
    return f".step-{step}.tmp-{attempt}"


def step_of(name: str) -> int | None:
    """The step of a checkpoint directory's name; None for any other name, such as ``step-0100``."""
    match = _FINAL_NAME.fullmatch(name)
    return int(match["step"]) if match else None


def staging_of(name: str) -> tuple[int, str] | None:
    """(step, attempt) of a directory that a save is writing; None for any other name."""
    match = _STAGING_NAME.fullmatch(name)
    return (int(match["step"]), match["attempt"]) if match else None


def trash_of(name: str) -> tuple[int, str] | None:
    """(step, attempt) of a directory that retention is deleting; None for any other name."""
    match = _TRASH_NAME.fullmatch(name)
    return (int(match["step"]), match["attempt"]) if match else None


def is_part_name(name: str) -> bool:
    """Whether a shared part may have this name: lower-case letters, digits and _, at most 63."""
    return _PART_NAME.fullmatch(name) is not None


def shared_file(part: str) -> str:
    return f"{part}.pt"


def own_file(rank: int) -> str:
    return f"rank-{rank}.pt"


def is_checkpoint_file(name: str) -> bool:
    """Whether the store itself gives this name to a file inside a checkpoint directory."""
    return name in (MANIFEST, MANIFEST_DRAFT, COMPLETE) or _is_data_file(name)


def is_own_file(name: str) -> bool:
    """Whether a data file belongs to one rank alone."""
    return _OWN_FILE.fullmatch(name) is not None


def _is_data_file(name: str) -> bool:
    return is_own_file(name) or _SHARED_FILE.fullmatch(name) is not None


def traces(names: Iterable[str]) -> list[str]:
    """The names which say that there was, or that someone may believe there is, a checkpoint here.

    What a save had not published yet says no such thing, nor do names like ``lost+found``.
    """
    return [name for name in names if name == LATEST or (name not in BOOKKEEPING and _is_trace(name))]


def _is_trace(name: str) -> bool:
    if staging_of(name) is not None:
        return False
    return name.casefold().lstrip(".").startswith(("step", "checkpoint", "ckpt", "corrupt-", "abandoned-", "trash-"))


@dataclass(frozen=True, kw_only=True, order=True)
class FileRecord:
    """One data file of a checkpoint; ``rank`` is the one that wrote it."""

    name: str
    size_bytes: int
    sha256: str
    rank: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a checkpoint holds and where it comes from.

    Attributes:
        attempt: restart count and random number of the job that saved it.
        parent: sha256 of the manifest that this job loaded or saved before it; None for the first.
        config: what the script said must be the same for whoever loads it; JSON values.
        made_with: versions, for the reader's information.
        files: sorted by name.
    """

    step: int
    attempt: str
    parent: str | None
    world_size: int
    config: Mapping[str, Any]
    made_with: Mapping[str, str]
    files: tuple[FileRecord, ...]

    def to_bytes(self) -> bytes:
        fields = {"format": FORMAT, **asdict(self), "files": [asdict(f) for f in self.files]}
        return json.dumps(fields, indent=1, sort_keys=True).encode() + b"\n"


def parse_manifest(data: bytes) -> Manifest:
    """The manifest that ``data`` holds, every field checked.

    Raises:
        Damaged: it is torn, of another format, or names files that a checkpoint cannot have.
    """
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{MANIFEST} is not JSON ({error})" if data else f"{MANIFEST} is empty") from None
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        seen = raw.get("format") if isinstance(raw, dict) else type(raw).__name__
        raise Damaged(f"{MANIFEST} has format {quoted(seen)}, not {FORMAT!r}")
    manifest = Manifest(
        step=_count(raw, "step"),
        attempt=_text(raw, "attempt", re.compile(_ATTEMPT)),
        parent=None if raw.get("parent") is None else _text(raw, "parent", _SHA256),
        world_size=_count(raw, "world_size", least=1),
        config=_mapping(raw, "config"),
        made_with={name: str(value) for name, value in _mapping(raw, "made_with").items()},
        files=_parse_files(raw),
    )
    names = [f.name for f in manifest.files]
    if names != sorted(set(names)):
        raise Damaged(f"{MANIFEST} lists its files twice or out of order")
    ranks = sorted(f.rank for f in manifest.files if is_own_file(f.name))
    if ranks != list(range(manifest.world_size)):
        listed = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}" if ranks else "none"
        raise Damaged(f"{MANIFEST} is of {manifest.world_size} ranks but lists the files of {listed}")
    return manifest


def _parse_files(raw: Mapping[str, Any]) -> tuple[FileRecord, ...]:
    entries = raw.get("files")
    if not isinstance(entries, list):
        raise Damaged(f"{MANIFEST} has no list of files")
    files = []
    for entry in entries:
        if not isinstance(entry, dict):
            raise Damaged(f"{MANIFEST} lists {quoted(entry)} as a file")
        name = entry.get("name")
        if not isinstance(name, str) or not _is_data_file(name):
            raise Damaged(f"{MANIFEST} lists {quoted(name)}, which is no name of a checkpoint's data file")
        record = FileRecord(
            name=name,
            size_bytes=_count(entry, "size_bytes"),
            sha256=_text(entry, "sha256", _SHA256),
            rank=_count(entry, "rank"),
        )
        if is_own_file(name) and name != own_file(record.rank):
            raise Damaged(f"{MANIFEST} says that rank {record.rank} wrote {name}")
        files.append(record)
    return tuple(files)


def _count(raw: Mapping[str, Any], name: str, least: int = 0) -> int:
    value = raw.get(name)
    if type(value) is not int or not least <= value < 10**18:
        raise Damaged(f"{MANIFEST} has {name} {quoted(value)}, not a whole number from {least}")
    return value


def _text(raw: Mapping[str, Any], name: str, pattern: re.Pattern[str]) -> str:
    value = raw.get(name)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise Damaged(f"{MANIFEST} has {name} {quoted(value)}, not {pattern.pattern}")
    return value


def _mapping(raw: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = raw.get(name)
    if not isinstance(value, dict):
        raise Damaged(f"{MANIFEST} has {name} {quoted(value)}, not an object")
    return value


def digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def marker_text(manifest: Manifest, manifest_sha256: str) -> bytes:
    """What COMPLETE must hold, to the byte: ``sha256sum -c COMPLETE`` checks the whole directory by hand."""
    lines = [f"# step {manifest.step} attempt {manifest.attempt}", f"{manifest_sha256}  {MANIFEST}"]
    lines += [f"{f.sha256}  {f.name}" for f in manifest.files]
    return ("\n".join(lines) + "\n").encode()
