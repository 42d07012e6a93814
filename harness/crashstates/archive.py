"""A state as one small file, which shows the failure again later and elsewhere, and which a job can begin with.

state.json       what it is: verdict, model, reason, what was lost, what undisturbed saves load as
checkpoints/     the directory as the crash left it
"""

from __future__ import annotations

import io
import json
import lzma
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from harness.crashstates.examine import Examination, Finding
from harness.crashstates.tree import Directory, File, Link, Visible
from harness.crashstates.verdict import Truth, Verdict
from harness.crashstates.wording import finding_json, finding_lines
from harness.errors import RecordError
from harness.quoted import quoted

FORMAT = "chaos-crash-state/1"
STATE_JSON = "state.json"
PREFIX = "checkpoints"
MAX_BYTES = 1 << 30


# What tarfile, its decompressors and json raise on bytes that they do not expect.
_UNREADABLE = (
    *(OSError, EOFError, tarfile.TarError, lzma.LZMAError, zlib.error),
    *(ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A state that was kept, read back.

    Attributes:
        acked, begun: the newest step that had been acknowledged, and begun, by then.
    """

    file: str
    verdict: Verdict
    lines: tuple[str, ...]
    acked: int
    begun: int
    truth: Truth
    visible: Visible


def write_archives(found: Examination, directory: Path, *, with_safe: bool = False) -> list[Path]:
    """One archive a finding, below ``directory``; returns their paths in the order of the findings.

    Args:
        with_safe: one of a state of each safe verdict as well.

    Raises:
        RecordError: it cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        findings = [*found.findings, *(found.safe if with_safe else ())]
        return [_write(found, f, directory / f"{i}-{f.verdict}.tar") for i, f in enumerate(findings, 1)]
    except OSError as error:
        raise RecordError(f"{directory}: cannot be written ({error.strerror}); set --keep DIR") from error


def _write(found: Examination, finding: Finding, path: Path) -> Path:
    state = finding.state
    about = {
        "format": FORMAT,
        "file": str(found.file),
        "acked": state.acked,
        "begun": state.begun,
        "truth": {str(step): by_rank for step, by_rank in found.truth.digests.items()},
        "lines": list(finding_lines(finding)),
        **finding_json(finding),
    }
    with tarfile.open(path, "w") as tar:
        _add(tar, STATE_JSON, json.dumps(about, indent=1).encode())
        _add_directory(tar, PREFIX)
        for name, node in state.visible.items():
            match node:
                case File(data, t_s):
                    _add(tar, f"{PREFIX}/{name}", data, t_s)
                case Directory():
                    _add_directory(tar, f"{PREFIX}/{name}")
                case Link(text):
                    info = tarfile.TarInfo(f"{PREFIX}/{name}")
                    info.type, info.linkname = tarfile.SYMTYPE, text
                    tar.addfile(info)
    return path


def read_archive(path: Path) -> Archive:
    """The state that ``path`` holds; nothing is unpacked.

    Raises:
        RecordError: it cannot be read, or is no archive of a crash state.
    """
    try:
        with tarfile.open(path) as tar:
            members = {member.name: member for member in tar.getmembers()}
            about = json.loads(_read(tar, members[STATE_JSON]))
            if about["format"] != FORMAT:
                raise ValueError(f"its format is {quoted(about['format'])}, not {FORMAT!r}")
            visible: Visible = {}
            for name in sorted(members):
                if (inside := name.removeprefix(f"{PREFIX}/")) != name and inside not in ("", STATE_JSON):
                    node = _node(tar, members[name])
                    if (above := inside.rpartition("/")[0]) and not isinstance(visible.get(above), Directory):
                        raise ValueError(f"{quoted(name)} is in no directory of the archive")
                    visible[inside] = node
            return Archive(
                file=str(about["file"]),
                verdict=about["verdict"],
                lines=tuple(about["lines"]),
                acked=int(about["acked"]),
                begun=int(about["begun"]),
                truth=Truth({int(step): tuple(by_rank) for step, by_rank in about["truth"].items()}),
                visible=visible,
            )
    except _UNREADABLE as error:
        raise RecordError(f"{path}: no archive of a crash state ({error}); give one that --keep wrote") from error


def _node(tar: tarfile.TarFile, member: tarfile.TarInfo) -> File | Link | Directory:
    if not {"", ".", ".."}.isdisjoint(member.name.split("/")):
        raise ValueError(f"{quoted(member.name)} leads out of the directory")
    if member.isdir():
        return Directory()
    if member.issym():
        return Link(member.linkname)
    if not member.isfile():
        raise ValueError(f"{quoted(member.name)} is neither a file, nor a directory, nor a link")
    return File(_read(tar, member), member.mtime)


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    if file is None or member.size > MAX_BYTES:
        raise ValueError(f"{quoted(member.name)} cannot be read")
    return file.read()


def _add(tar: tarfile.TarFile, name: str, data: bytes, t_s: float = 0.0) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = len(data), t_s, 0o600  # PAX keeps fractions of seconds
    tar.addfile(info, io.BytesIO(data))


def _add_directory(tar: tarfile.TarFile, name: str) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.mode = tarfile.DIRTYPE, 0o700
    tar.addfile(info)
