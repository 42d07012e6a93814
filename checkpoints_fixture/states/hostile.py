"""What an attacker makes of a directory: nothing is run, read or written outside it."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

from checkpoints_fixture.states.base import DEAD, NEWEST, OLDEST, link_outside, resign, state
from harness.checkpoint import layout
from harness.checkpoint.layout import ATTEMPT, COMPLETE, LOCK, MANIFEST


class _Payload:
    """Runs a command when it is unpickled: it makes the file ``payload-ran`` beside the directory."""

    def __init__(self, proof: Path) -> None:
        self._proof = proof

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, ...]]:
        return os.mkdir, (str(self._proof),)


def _payload(root: Path) -> bytes:
    return pickle.dumps(_Payload(root.parent / "payload-ran"), protocol=2)


@state()
def pickle_payload(root: Path) -> None:
    """Signed, and one of its files runs code for whoever unpickles it."""
    (root / NEWEST / "model.pt").write_bytes(_payload(root))
    resign(root / NEWEST)


@state()
def pickle_payload_in_every_file(root: Path) -> None:
    """Signed, and each file is an archive such as torch writes, with code in place of the data's description."""
    for path in (root / NEWEST).glob("*.pt"):
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in {"data.pkl": _payload(root), "byteorder": b"little", "version": b"3\n"}.items():
                archive.writestr(f"archive/{name}", data)
    resign(root / NEWEST)


@state()
def script_archive(root: Path) -> None:
    """Signed, and one of its files is an archive of TorchScript, which is code."""
    with zipfile.ZipFile(root / NEWEST / "model.pt", "w") as archive:
        for name in ("constants.pkl", "data.pkl", "code/__torch__.py", "version"):
            archive.writestr(f"archive/{name}", b"3" if name == "version" else _payload(root))
    resign(root / NEWEST)


@state()
def own_part_is_no_dict(root: Path) -> None:
    import torch

    buffer = io.BytesIO()
    torch.save([1, 2], buffer)
    (root / NEWEST / "rank-1.pt").write_bytes(buffer.getvalue())
    resign(root / NEWEST)


@state()
def shard_links_out(root: Path) -> None:
    """The very bytes that the manifest asks for, but behind a link."""
    link_outside(root, root / NEWEST / "model.pt")


@state()
def manifest_links_out(root: Path) -> None:
    link_outside(root, root / NEWEST / MANIFEST)


@state()
def complete_links_out(root: Path) -> None:
    link_outside(root, root / NEWEST / COMPLETE)


@state()
def step_links_out(root: Path) -> None:
    link_outside(root, root / NEWEST)


@state()
def attempt_links_out(root: Path) -> None:
    link_outside(root, root / ATTEMPT)


@state()
def lock_links_out(root: Path) -> None:
    """Whoever follows it empties a file of somebody else's."""
    link_outside(root, root / LOCK)


@state()
def drafts_link_out(root: Path) -> None:
    """Whoever writes the next ``latest`` or ATTEMPT through them writes outside."""
    for name in (layout.LATEST_DRAFT, layout.ATTEMPT_DRAFT):
        (root / name).write_text("precious")
        link_outside(root, root / name)


@state()
def leftovers_link_out(root: Path) -> None:
    """Named as what an earlier attempt left half-deleted and half-written, so that a save would clear it away."""
    (root / ATTEMPT).write_text(json.dumps({"attempt": DEAD, "earlier": []}))
    for name in (f".trash-{DEAD}-step-1", f".step-2.tmp-{DEAD}"):
        shutil.copytree(root / OLDEST, root / name)
        link_outside(root, root / name)


@state()
def lock_is_a_fifo(root: Path) -> None:
    (root / LOCK).unlink()
    os.mkfifo(root / LOCK)


@state()
def complete_is_a_fifo(root: Path) -> None:
    (root / NEWEST / COMPLETE).unlink()
    os.mkfifo(root / NEWEST / COMPLETE)


@state()
def manifest_is_huge(root: Path) -> None:
    """Whoever reads it whole fills the memory."""
    os.truncate(root / NEWEST / MANIFEST, layout.MAX_MANIFEST_BYTES + 1)


@state()
def manifest_claims_a_huge_file(root: Path) -> None:
    """Signed; whoever makes room for what it says fills memory or disk."""
    resign(root / NEWEST, lambda files: [dataclasses.replace(f, size_bytes=10**17) for f in files])


@state()
def shard_is_a_fifo(root: Path) -> None:
    """Whoever opens it waits for ever."""
    (root / NEWEST / "model.pt").unlink()
    os.mkfifo(root / NEWEST / "model.pt")


@state()
def complete_is_a_directory(root: Path) -> None:
    (root / NEWEST / COMPLETE).unlink()
    (root / NEWEST / COMPLETE).mkdir()
