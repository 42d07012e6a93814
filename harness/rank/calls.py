"""What is recorded of a collective call.

Each call comes amid training, when the caches are cold, and there C++ takes long to answer anything: what can be known
from a type, or from an equal call before, is not asked again.
"""

from __future__ import annotations

import functools
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
import torch.distributed.distributed_c10d as c10d
from torch._C import _distributed_c10d as _C_module

from harness.rank.recorder import encode

_C: Any = _C_module  # Any: what only C++ knows is not in torch's types

_TRANSFER_FIRST = {"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"}  # (output, input, ...)
# By number, which is the hash of a ReduceOp: to ask one for its name takes as long as all the rest of a record.
_REDUCE_OPS: dict[int, str] = {int(op): name for name, op in _C.ReduceOp.RedOpType.__members__.items()}
_MAIN_THREAD = threading.main_thread().ident  # a fork keeps it
MAX_LINES = 4096
_lines: dict[tuple[int, int], tuple[str, CodeType]] = {}
_OUR_FILES = (str(Path(__file__).parents[1]), "<")


def members_of(group: str, operation: str, args: Any, kwargs: Any, faulted: str | None) -> str:
    """JSON members, each with a comma before it: all that is recorded of a call but its number.

    Args:
        group: its name.
        operation: as the record calls it.
        args, kwargs: of the process group's method.
        faulted: what a fault did with it, if one did.
    """
    reduce_op = root = None
    for value in (*args, *kwargs.values()) if kwargs else args:
        kind: Any = type(value)
        has_reduce_op, has_root = _has_options(kind)
        if has_reduce_op:
            reduce_op = _REDUCE_OPS[hash(value.reduceOp)]
        if has_root:
            root = value.rootRank
    tensors = args[0] if operation == "all_reduce" and args and type(args[0]) is list else sent(operation, args)
    numel = tensors[0].numel() if len(tensors) == 1 else numel_of(tensors)
    dtype = tensors[0].dtype if tensors else None
    is_aside = threading.get_ident() != _MAIN_THREAD and _is_aside()
    # file:line of the innermost frame that is neither torch's nor this package's: the line to look at. A call is
    # implied if other code of torch's than the functions that scripts call asked for it.
    frame: FrameType | None = sys._getframe(2)  # of the process group's method, or of a fault
    site, first = None, _OURS
    while frame is not None:
        code = frame.f_code
        if (of := _origin(code.co_filename)) == _SCRIPTS:
            site = _line(frame)
            break
        first = first or of
        frame = frame.f_back
    is_implied = first == _TORCHS
    return _encoded(group, operation, reduce_op, numel, dtype, root, site, faulted, is_aside, is_implied)


@functools.lru_cache(maxsize=1024)  # a training loop sends the same few again and again
def _encoded(
    group: str,
    op: str,
    reduce_op: str | None,
    numel: int,
    dtype: torch.dtype | None,
    root: int | None,
    site: str | None,
    faulted: str | None,
    is_aside: bool,
    is_implied: bool,
) -> str:
    fields: dict[str, Any] = {
        "group": group,
        "op": op,
        "reduce_op": reduce_op,
        "numel": numel,
        "dtype": None if dtype is None else str(dtype).removeprefix("torch."),
        "root": root,
        "site": site,
    }
    if faulted is not None:
        fields["faulted"] = faulted
    if is_aside:
        fields["aside"] = True
    if is_implied:
        fields["implied"] = True
    return f",{encode(fields)[1:-1]}"


def _is_aside() -> bool:
    """Whether this thread is the script's own; autograd's threads, which send DDP's buckets, are none of Python's."""
    return not isinstance(threading.current_thread(), threading._DummyThread)


def sent(operation: str, args: Any) -> list[torch.Tensor]:
    """The tensors that this rank sends; of a rank that only receives, those that it receives."""
    if operation in _TRANSFER_FIRST and len(args) > 1 and (inputs := tensors_in(args[1:2])):
        return inputs
    return tensors_in(args)


def tensors_in(values: Any) -> list[torch.Tensor]:
    """The tensors among ``values``, in lists and tuples too."""
    found: list[torch.Tensor] = []
    for value in values:
        kind: Any = type(value)
        if isinstance(value, (list, tuple)):
            found += tensors_in(value) if value and isinstance(value[0], (list, tuple)) else value
        elif _is_tensor(kind):
            found.append(value)
    return found


def numel_of(tensors: list[torch.Tensor]) -> int:
    return sum([tensor.numel() for tensor in tensors])


@functools.cache  # options of C++ take long to ask anything
def _is_tensor(kind: Any) -> bool:
    return issubclass(kind, torch.Tensor)


@functools.cache
def _has_options(kind: Any) -> tuple[bool, bool]:
    """Whether arguments of this type tell a reduce operation, a root."""
    return hasattr(kind, "reduceOp"), hasattr(kind, "rootRank")


def site_of(frame: FrameType | None) -> str | None:
    """``file:line`` of ``frame``, or of the innermost one around it that is the script's."""
    while frame is not None:
        if _origin(frame.f_code.co_filename) == _SCRIPTS:
            return _line(frame)
        frame = frame.f_back
    return None


def _line(frame: FrameType) -> str:
    """``file:line`` that it is at. To find the number of a line, Python reads its table of them from the first on."""
    place = (id(frame.f_code), frame.f_lasti)
    if (found := _lines.get(place)) is None:
        if len(_lines) >= MAX_LINES:
            _lines.clear()
        # With the code, which may not go: another one would get its identity.
        found = _lines[place] = f"{frame.f_code.co_filename}:{frame.f_lineno}", frame.f_code
    return found[0]


_OURS, _ASKED, _TORCHS, _SCRIPTS = range(4)


@functools.cache
def _origin(filename: str) -> int:
    if filename == c10d.__file__:
        return _ASKED
    if filename.startswith(torch.__path__[0]):
        return _TORCHS
    return _OURS if filename.startswith(_OUR_FILES) else _SCRIPTS
