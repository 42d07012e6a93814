"""Equal digests for equal contents, of whatever a user's load returns; in the process that called it.

What is stored is what counts: dtype, shape and bytes of a tensor, not its strides, storage or gradient; the items of
a dictionary, not their order. Nothing is imported for it: a type whose module is not there cannot have come up.
"""

from __future__ import annotations

import dataclasses
import enum
import pathlib
import struct
import sys
from collections.abc import Iterator, Mapping, Set
from hashlib import blake2b
from types import SimpleNamespace
from typing import Any

from harness.crashstates.ranks.outcome import NOTHING, Loaded

_MAX_SUMMARY = 500
_ALLOWED = (
    "None, bool, int, float, complex, str, bytes, paths, enums, lists, tuples, sets, dictionaries, dataclasses, "
    "numpy arrays, torch tensors, and objects with a state_dict()"
)


class Incomparable(TypeError):
    """A value that has no content to compare by."""


def loaded(value: object) -> Loaded:
    """Digest and summary of ``value``.

    Raises:
        Incomparable: something in it cannot be compared by content; names where in it, what can be, and the cure.
    """
    if value is None:
        return Loaded(NOTHING, "None")
    words = summary(value)[:_MAX_SUMMARY].encode(errors="backslashreplace").decode()
    return Loaded(_digest(value, "the value", ()).hex(), words)


def _digest(value: object, where: str, above: tuple[int, ...]) -> bytes:
    hasher = blake2b(digest_size=16)
    if id(value) in above:
        raise Incomparable(f"{where} contains itself; return a value without such a circle")
    for part in _parts(value, where, (*above, id(value))):
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.digest()


def _parts(value: object, where: str, above: tuple[int, ...]) -> Iterator[bytes | memoryview]:
    """What makes ``value`` the value it is: its kind first, then its content."""
    match value:
        case None | bool():
            yield f"{value}".encode()
        case enum.Enum():
            yield f"enum {_name(value)}.{value.name}".encode()
        case int():
            yield f"int {value:x}".encode()  # in decimals it may have too many digits
        case float():
            yield b"float"
            yield struct.pack("<d", value)
        case complex():
            yield b"complex"
            yield struct.pack("<dd", value.real, value.imag)
        case str():
            yield b"str"
            yield value.encode(errors="surrogatepass")
        case bytes() | bytearray() | memoryview():
            yield b"bytes"
            yield memoryview(value).cast("B") if memoryview(value).c_contiguous else bytes(value)
        case pathlib.PurePath():
            yield b"path"
            yield str(value).encode(errors="surrogateescape")
        case Mapping():
            yield b"dict"
            items = ((_digest(key, f"a key of {where}", above), key) for key in value)
            for digest, key in sorted(items, key=lambda item: item[0]):
                yield digest
                yield _digest(value[key], f"{where}[{key!r}]", above)
        case Set():
            yield b"set"
            yield from sorted(_digest(item, f"an item of {where}", above) for item in value)
        case list() | tuple():
            yield (b"tuple" if isinstance(value, tuple) else b"list") + _field_names(value)
            for index, item in enumerate(value):
                yield _digest(item, f"{where}[{index}]", above)
        case SimpleNamespace():
            yield b"namespace"
            yield _digest(vars(value), where, above)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield f"dataclass {_name(value)}".encode()
            for field in dataclasses.fields(value):
                yield _digest(getattr(value, field.name), f"{where}.{field.name}", above)
        case _ if (library := _library(value)) is not None:
            yield from library(value, where, above)
        case _ if callable(state_dict := getattr(value, "state_dict", None)) and not isinstance(value, type):
            yield f"state_dict {_name(value)}".encode()
            yield _digest(state_dict(), f"{where}.state_dict()", above)
        case _:
            raise Incomparable(
                f"{where} is a {_name(value)}, which cannot be compared by content; let load return {_ALLOWED}"
            )


def _library(value: object) -> Any:
    """How to take a numpy or torch value apart; None for any other."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
        return _numpy_parts
    if torch is not None and isinstance(value, torch.Tensor):
        return _tensor_parts
    if torch is not None and isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
        return lambda value, _where, _above: iter([f"torch {value}".encode()])
    if torch is not None and isinstance(value, torch.Generator):
        return lambda value, where, above: iter([b"generator", _digest(value.get_state(), where, above)])
    return None


def _numpy_parts(value: Any, where: str, above: tuple[int, ...]) -> Iterator[bytes | memoryview]:
    import numpy

    array = numpy.ascontiguousarray(value)
    yield f"numpy {array.dtype.descr} {value.shape}".encode()
    if array.dtype.hasobject:
        yield _digest(array.reshape(-1).tolist(), where, above)
    else:
        yield array.reshape(-1).view(numpy.uint8).data


def _tensor_parts(value: Any, where: str, above: tuple[int, ...]) -> Iterator[bytes | memoryview]:
    import torch

    if hasattr(value, "to_local") and hasattr(value, "placements"):  # a DTensor: what this rank has of it
        yield f"DTensor {tuple(value.shape)} {value.placements}".encode()
        yield _digest(value.to_local(), f"{where}.to_local()", above)
        return
    tensor = value.detach()
    if tensor.is_meta:
        raise Incomparable(
            f"{where} is a tensor on the meta device, which has no content; let load return real tensors"
        )
    if tensor.layout is not torch.strided:
        tensor = tensor.to_sparse_coo().coalesce()
        yield f"sparse {tuple(tensor.shape)}".encode()
        yield _digest([tensor.indices(), tensor.values()], where, above)
        return
    if tensor.is_quantized:
        yield f"quantized {tensor.dtype} {tensor.qscheme()}".encode()
        yield _digest([tensor.int_repr(), tensor.dequantize()], where, above)
        return
    yield f"tensor {tensor.dtype} {tuple(tensor.shape)}".encode()
    plain = tensor.cpu().resolve_conj().resolve_neg().contiguous()
    yield memoryview(plain.reshape(-1).view(torch.uint8).numpy())


def _field_names(value: object) -> bytes:
    """Of a named tuple; nothing for a plain one."""
    return " ".join(getattr(value, "_fields", ())).encode()


def _name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def summary(value: object, depth: int = 0) -> str:
    """``value`` in a few words: ``dict(model: 2 tensors, step: 3)``."""
    torch = sys.modules.get("torch")
    match value:
        case int() if value.bit_length() > 64:
            return f"int of {value.bit_length()} bits"
        case None | bool() | int() | float():
            return repr(value)
        case str() | bytes():
            return repr(value) if len(value) <= 24 else f"{type(value).__name__} of {len(value)}"
        case Mapping() if value and all(_is_tensor(item) for item in value.values()):
            return _count(len(value), "tensor")
        case Mapping() if depth < 2 and len(value) <= 6:
            return f"dict({', '.join(f'{key}: {summary(item, depth + 1)}' for key, item in value.items())})"
        case Mapping():
            return f"dict of {len(value)}"
        case list() | tuple() if value and all(_is_tensor(item) for item in value):
            return _count(len(value), "tensor")
        case list() | tuple() if depth < 2 and len(value) <= 4:
            return f"{type(value).__name__}({', '.join(summary(item, depth + 1) for item in value)})"
        case list() | tuple() | Set():
            return f"{type(value).__name__} of {len(value)}"
        case _ if torch is not None and isinstance(value, torch.Tensor):
            return f"tensor{list(value.shape)}"
        case _ if dataclasses.is_dataclass(value) and depth < 2 and not isinstance(value, type):
            fields = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)][:6]
            return f"{type(value).__name__}({', '.join(f'{n}: {summary(v, depth + 1)}' for n, v in fields)})"
        case _:
            return type(value).__name__


def _is_tensor(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
