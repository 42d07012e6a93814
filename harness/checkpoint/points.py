"""The named places of a save and a load, and how the harness looks in.

The store calls ``around``, ``write`` and ``tell``; with no listener each costs one read of a global. A listener sees
every failpoint as ``NAME:before`` and ``NAME:after``; a write that it tears also as ``NAME:torn``.

Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec, Protocol, TypeVar

from harness.wire import Kind

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Failpoint:
    """A named place where a fault may fire.

    Attributes:
        writer: which ranks pass it.
        torn: whether it is a write, so that only a part of it may reach the file.
        during: what the job is doing there.
        doc: what happens between ``:before`` and ``:after``.
    """

    writer: Literal["every", "rank0"]
    during: Literal["save", "load"]
    doc: str
    torn: bool = False


FAILPOINTS: dict[str, Failpoint] = {
    "ckpt.stage.mkdir": Failpoint(writer="rank0", during="save", doc="make the hidden directory that the save fills"),
    "ckpt.shard.create": Failpoint(writer="every", during="save", doc="create a data file, empty"),
    "ckpt.shard.write": Failpoint(writer="every", during="save", doc="write a piece of a data file", torn=True),
    "ckpt.shard.fsync": Failpoint(writer="every", during="save", doc="make a data file durable"),
    "ckpt.manifest.write": Failpoint(writer="rank0", during="save", doc="write the manifest's draft", torn=True),
    "ckpt.manifest.fsync": Failpoint(writer="rank0", during="save", doc="make the draft durable"),
    "ckpt.manifest.rename": Failpoint(writer="rank0", during="save", doc="give the draft its name, durably"),
    "ckpt.complete.write": Failpoint(writer="rank0", during="save", doc="write COMPLETE", torn=True),
    "ckpt.complete.fsync": Failpoint(writer="rank0", during="save", doc="make COMPLETE durable"),
    "ckpt.publish.rename": Failpoint(writer="rank0", during="save", doc="give the directory its final name"),
    "ckpt.publish.fsync": Failpoint(writer="rank0", during="save", doc="make the final name durable"),
    "ckpt.acknowledge": Failpoint(writer="every", during="save", doc="all ranks hear that the save is done"),
    "ckpt.latest.write": Failpoint(writer="rank0", during="save", doc="make the new link `latest` under a draft name"),
    "ckpt.latest.replace": Failpoint(writer="rank0", during="save", doc="put the new link in the old one's place"),
    "ckpt.retention.rename": Failpoint(writer="rank0", during="save", doc="take an old checkpoint out of the choice"),
    "ckpt.retention.delete": Failpoint(writer="rank0", during="save", doc="delete what was taken out"),
    "ckpt.load.read": Failpoint(writer="every", during="load", doc="verify and read one candidate"),
    "ckpt.load.agree": Failpoint(writer="every", during="load", doc="all ranks vote on that candidate"),
}


class Listener(Protocol):
    """What the harness installs inside a rank."""

    def reach(self, failpoint: str) -> None:
        """A failpoint with its moment, such as ``ckpt.shard.write:before``; may not return."""

    def part(self, name: str, size_bytes: int) -> int | None:
        """How many bytes of the write at failpoint ``name`` shall reach the file; None: all.

        After a part, ``reach(name + ":torn")`` is called and must not return.
        """

    def tell(self, kind: Kind, step: int, **fields: Any) -> None:
        """An event with the fields that ``harness.wire.Kind`` lists for it."""


listener: Listener | None = None


def reach(failpoint: str) -> None:
    if listener is not None:
        listener.reach(failpoint)


def tell(kind: Kind, step: int, **fields: Any) -> None:
    if listener is not None:
        listener.tell(kind, step, **fields)


def around(name: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do ``call(*args, **kwargs)`` as failpoint ``name``; ``:after`` is passed only if it did not raise."""
    if listener is None:
        return call(*args, **kwargs)
    listener.reach(f"{name}:before")
    result = call(*args, **kwargs)
    listener.reach(f"{name}:after")
    return result


def write(name: str, fd: int, data: bytes | memoryview) -> None:
    """Write all of ``data`` to ``fd`` as failpoint ``name``, or the part that the listener wants and no more.

    Raises:
        OSError: the file system refused.
    """
    if listener is None:
        _write_all(fd, data)
        return
    listener.reach(f"{name}:before")
    part_bytes = listener.part(name, len(data))
    if part_bytes is not None:
        _write_all(fd, memoryview(data)[:part_bytes])
        listener.reach(f"{name}:torn")
        raise AssertionError(f"the listener returned from {name}:torn; it must end the process there")
    _write_all(fd, data)
    listener.reach(f"{name}:after")


def _write_all(fd: int, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]  # a nearly full disk writes short before it says ENOSPC
