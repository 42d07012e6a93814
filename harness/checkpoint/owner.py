"""One live writer a directory: a lock for as long as its process lives, and a name for what it writes."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.checkpoint import files, layout
from harness.errors import CheckpointError


class TakenError(CheckpointError):
    """Another live process writes to this directory."""


@dataclass(frozen=True)
class Claim:
    """This process is the directory's one writer until it ends.

    Attributes:
        attempt: restart count and a random number; part of every name that is not a checkpoint's.
        known: this and all earlier attempts on the directory: what bears one of these was made by this store.
    """

    attempt: str
    known: frozenset[str]
    lock_fd: int


_claims: dict[tuple[int, int], Claim] = {}  # by device and inode of the lock file


def _forget_claims() -> None:
    # A forked child (a loader's worker, say) must not keep the lock of a parent that was killed.
    for claim in _claims.values():
        os.close(claim.lock_fd)
    _claims.clear()


os.register_at_fork(after_in_child=_forget_claims)


def claim(root: Path, environ: Mapping[str, str] = os.environ) -> Claim:
    """Become the writer of ``root``, which is made if it is missing; again in the same process gives the same claim.

    Raises:
        TakenError: another process holds it; names its pid and host.
        OSError: the directory cannot be made or written.
    """
    _make_root(root)
    with files.open_root(root) as root_fd:
        if files.exists(root_fd, layout.LOCK) and (kind := files.kind_of(root_fd, layout.LOCK)) != "a plain file":
            raise files.NotPlain(f"{root / layout.LOCK} is {kind}, not a plain file; remove it if no job writes here")
        lock_fd = os.open(layout.LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=root_fd)
        status = os.fstat(lock_fd)
        key = (status.st_dev, status.st_ino)
        if key in _claims:
            os.close(lock_fd)
            return _claims[key]
        try:
            _lock(root, lock_fd)
            earlier = _known_attempts(root_fd)
            attempt = f"{_restart_count(environ)}-{secrets.token_hex(8)}"
            _write_attempt(root_fd, attempt, earlier)
        except BaseException:
            os.close(lock_fd)
            raise
        _claims[key] = Claim(attempt, earlier | {attempt}, lock_fd)
        return _claims[key]


def check_fence(root_fd: int, held: Claim) -> None:
    """Look again, before anything becomes visible: a lock can be lost on a network file system.

    Raises:
        TakenError: a later attempt has taken the directory over.
    """
    current = _read_attempt(root_fd).get("attempt")
    if current != held.attempt:
        raise TakenError(
            f"attempt {current} has taken this directory over from {held.attempt}; its saves must not show"
        )


def _make_root(root: Path) -> None:
    if root.is_dir():
        return
    if root.exists():  # mkdir would say that it exists, and not why that is wrong
        raise NotADirectoryError(f"{root} is not a directory; give the path of one, or of nothing yet")
    root.parent.mkdir(parents=True, exist_ok=True)
    root.mkdir(mode=0o700, exist_ok=True)
    with files.open_root(root.parent) as parent_fd:
        os.fsync(parent_fd)


def _lock(root: Path, lock_fd: int) -> None:
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock_fd, 200, 0).decode(errors="replace").strip() or "an unknown process"
        raise TakenError(f"{root} is in use by {holder}; wait for it to end, or give another directory") from None
    os.ftruncate(lock_fd, 0)
    os.pwrite(lock_fd, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)


def _restart_count(environ: Mapping[str, str]) -> int:
    text = environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return int(text) if text.isascii() and text.isdigit() else 0


def _read_attempt(root_fd: int) -> dict[str, object]:
    try:
        raw = json.loads(files.read_small(root_fd, layout.ATTEMPT, 1 << 20))
    except (OSError, ValueError, RecursionError):
        return {}
    return raw if isinstance(raw, dict) else {}


def _known_attempts(root_fd: int) -> frozenset[str]:
    raw = _read_attempt(root_fd)
    earlier = raw.get("earlier")
    names = [raw.get("attempt"), *(earlier if isinstance(earlier, list) else [])]
    return frozenset(name for name in names if isinstance(name, str))


def _write_attempt(root_fd: int, attempt: str, earlier: frozenset[str]) -> None:
    draft = layout.ATTEMPT_DRAFT
    with suppress(FileNotFoundError):
        os.unlink(draft, dir_fd=root_fd)  # of a process that died here
    fd = files.create(root_fd, draft)
    try:
        os.write(fd, json.dumps({"attempt": attempt, "earlier": sorted(earlier)}).encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(draft, layout.ATTEMPT, src_dir_fd=root_fd, dst_dir_fd=root_fd)
    os.fsync(root_fd)
