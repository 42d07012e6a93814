"""One data file of a checkpoint: written by torch, hashed on the way, read back without running code."""

from __future__ import annotations

import io
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import IO, Any, cast

import torch

from harness.checkpoint import files, layout, points

_SMALL_BYTES = 1 << 20
_LEAVES = (torch.Tensor, torch.nn.Parameter, int, float, complex, bool, str, bytes, type(None), torch.Size, torch.dtype)
_crc_setting = threading.Lock()  # the setting is the whole process's
_CONTAINERS = (dict, OrderedDict, list, tuple, set)


class Frozen:
    """The bytes of a part as they are now, to be written later: no later change of a tensor reaches them.

    Bytes rather than copied tensors: what shares memory stays shared, devices and sizes are as a save has them, and
    nothing is left that could be changed. Takes as much memory as the part.
    """

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, data: bytes | memoryview) -> int:
        self.pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing; ``torch.save`` calls it."""


def freeze(name: str, value: Any) -> Frozen:
    """What ``save_part`` would write as ``name`` now.

    Raises:
        TypeError: something in it could not be loaded again without running code; names the place.
    """
    frozen = Frozen()
    _save_value(name, value, frozen)
    return frozen


def save_part(dir_fd: int, name: str, value: Any, rank: int) -> layout.FileRecord:
    """Write ``value``, frozen or not, as the new file ``name`` and make it durable.

    Raises:
        TypeError: something in it could not be loaded again without running code; names the place.
        OSError: the file system refused.
    """
    fd = points.around("ckpt.shard.create", files.create, dir_fd, name)
    try:
        writer = files.HashingWriter(fd, "ckpt.shard.write")
        if isinstance(value, Frozen):
            for piece in value.pieces:
                writer.write(piece)
        else:
            _save_value(name, value, writer)
        writer.finish()
        points.around("ckpt.shard.fsync", os.fsync, fd)
    finally:
        os.close(fd)
    return layout.FileRecord(name=name, size_bytes=writer.size_bytes, sha256=writer.hexdigest(), rank=rank)


def _save_value(name: str, value: Any, file: files.HashingWriter | Frozen) -> None:
    for place, type_ in unloadable(value):
        raise TypeError(
            f"{name.removesuffix('.pt')}{place} is {type_.__module__}.{type_.__qualname__}, which cannot be loaded "
            "without running code; save tensors, numbers, text, and dicts, lists or tuples of them"
        )
    # The CRCs inside the file would cost as much time as writing it; the sha256 of the manifest says more.
    with _crc_setting:
        before = torch.serialization.get_crc32_options()
        torch.serialization.set_crc32_options(False)
        try:
            torch.save(value, cast(IO[bytes], file))
        finally:
            torch.serialization.set_crc32_options(before)


def load_part(dir_fd: int, name: str) -> Any:
    """What ``save_part`` was given, its tensors on the CPU.

    Raises:
        layout.Damaged: torch does not read it, or it would run code.
        OSError: the file cannot be read.
    """
    opened = files.open_to_read(dir_fd, name)
    try:
        is_small = opened.size_bytes <= _SMALL_BYTES
        # torch reads piece by piece, with three system calls each.
        file = io.BytesIO(files.read(opened)) if is_small else os.fdopen(opened.fd, "rb", closefd=False)
        return torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # torch raises nearly anything on hostile bytes
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]:.200}"
        raise layout.Damaged(f"{name} cannot be loaded as plain data ({reason})") from error
    finally:
        os.close(opened.fd)


def unloadable(value: Any, place: str = "") -> Iterator[tuple[str, type]]:
    """(place, type) of whatever in ``value`` a load that runs no code would refuse."""
    if type(value) in _LEAVES:
        return
    if type(value) not in _CONTAINERS:
        yield place, type(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            if type(key) not in _LEAVES and type(key) is not tuple:
                yield f"{place}.keys()", type(key)
            yield from unloadable(item, f"{place}[{key!r}]")
    else:
        for index, item in enumerate(value):
            yield from unloadable(item, f"{place}[{index}]")
