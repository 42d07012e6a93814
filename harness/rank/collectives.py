"""Every collective of every process group, DDP's buckets included, goes through here.

``torch.distributed`` makes each group by calling the name ``ProcessGroup`` in its own module. That name is replaced by
a class that holds a stock group: it records the call, asks the triggers, and hands the call on to the stock group. The
backends (gloo, NCCL) are the stock ones, ``get_backend()`` says what it always said, and C++ callers such as DDP's
reducer come through here as well, since these methods are virtual there.

Why it holds a stock group, where calling its own base class would do: a Python subclass calls the base's methods
through torch's trampoline, which keeps the interpreter locked meanwhile. Gloo's thread takes the same lock to destroy a
finished call while it holds its queue, so that both can wait for ever (seen on 2.13.0 within 300 calls of 4 ranks).
"""

from __future__ import annotations

import functools
import gc
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch._C import _distributed_c10d as _C_module

from harness.checkpoint.exchange import APART
from harness.rank.recorder import Recorder
from harness.rank.triggers import Triggers, act
from harness.wire import Kind

# Any: what is replaced and what only C++ knows is not in torch's types.
_c10d: Any = c10d
_C: Any = _C_module
_Stock: Any = c10d.ProcessGroup

# What the record calls it, for each name that torch gives the method (2.13 renamed some and kept the old names).
_METHODS = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "allgather": "all_gather",
    "allgather_coalesced": "all_gather",
    "_allgather_base": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "all_gather_single": "all_gather",
    "all_gather_single_coalesced": "all_gather",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_single_coalesced": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "barrier": "barrier",
    "monitored_barrier": "barrier",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send",
    "recv": "recv",
    "recv_anysource": "recv",
}
_TRANSFER_FIRST = {"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"}  # (output, input, ...)
_NOT_THE_SCRIPT = (torch.__path__[0], str(Path(__file__).parents[1]), "<")

_recorder: Recorder
_triggers: Triggers
# Stock groups, held until the script is done. Else a DDP object that outlives destroy_process_group() may be the last
# to hold one, and frees it with the interpreter locked: it waits for gloo's threads, and they for the lock.
_keep = True
_kept: list[Any] = []
# Group -> calls that the script came back from without an error, whatever became of them further down. What was sent is
# on record by itself, so that a call that was answered and never sent shows in the records.
_returned: Counter[str] = Counter()
_last_returned: dict[str, str] = {}  # group -> operation


class _Call:
    """One collective call: what is recorded of it, and what a fault may do with it (harness.faults.base.Call)."""

    def __init__(self, group: RecordingProcessGroup, operation: str, stock: Callable[..., Any], args: Any, kwargs: Any):
        self._group, self._stock, self._args, self._kwargs = group, stock, args, kwargs
        self._operation = operation
        tensors = list(_tensors(args))
        if operation in _TRANSFER_FIRST and len(args) > 1 and (inputs := list(_tensors(args[1:2]))):
            tensors = inputs  # what this rank sends; a rank that only receives has no input
        self.numel = sum(t.numel() for t in tensors)
        self.dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else None
        self._device = tensors[0].device if tensors else torch.device("cpu")
        given = (*args, *kwargs.values())
        reduce_op = next((a.reduceOp for a in given if hasattr(a, "reduceOp")), None)
        self.reduce_op = None if reduce_op is None else str(reduce_op.op).rpartition(".")[2]
        self.root = next((a.rootRank for a in given if hasattr(a, "rootRank")), None)

    def record(self, faulted: str | None = None, **sent: Any) -> None:
        self._group.calls += 1
        fields: dict[str, Any] = {
            "group": self._group.group_name,
            "call": self._group.calls,
            "op": self._operation,
            "reduce_op": self.reduce_op,
            "numel": self.numel,
            "dtype": self.dtype,
            "root": self.root,
            "site": _site(),
        } | sent
        if faulted is not None:
            fields["faulted"] = faulted
        if _is_aside():
            fields["aside"] = True
        _recorder.emit(Kind.COLLECTIVE, **fields)

    def issue(self) -> Any:
        self.record()
        return self._stock(self._group.inner, *self._args, **self._kwargs)

    def completed(self) -> Any:
        self.record(faulted="skipped")
        future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
        future.set_result(list(_tensors(self._args[:1])))  # what a bucket's waiter takes as the reduced values
        return _C._create_work_from_future(future)

    def issue_like(self, numel: int | None = None) -> None:
        numel = self.numel if numel is None else numel
        dtype = getattr(torch, self.dtype) if self.dtype else torch.float32
        scratch = torch.zeros(numel, dtype=dtype, device=self._device)
        if self._operation == "broadcast":
            self.record(faulted="extra", numel=numel)
            work = self._group.inner.broadcast([scratch], *self._args[1:], **self._kwargs)
        else:
            self.record(faulted="extra", op="all_reduce", reduce_op="SUM", numel=numel, dtype=str(dtype)[6:], root=None)
            work = self._group.inner.allreduce([scratch], dist.AllreduceOptions())
        work.wait()  # here, so that an error of it counts as one of communication


class RecordingProcessGroup(_Stock):  # type: ignore[misc]
    """A process group that records each collective at issue and sends it through a stock group.

    Attributes:
        inner: the stock group; it has the same backends, name and store.
        calls: number of collectives recorded on this group by this rank.
    """

    def __init__(self, store: Any, rank: int, size: int) -> None:
        super().__init__(rank, size)  # of the C++ constructors only this one lets methods be overridden
        self.inner = _Stock(store, rank, size)
        if _keep:
            _kept.append(self.inner)
        self.calls = 0

    def get_group_store(self) -> Any:
        return self.inner.get_group_store()

    @property
    def bound_device_id(self) -> Any:
        return self.inner.bound_device_id

    @bound_device_id.setter
    def bound_device_id(self, device: Any) -> None:
        self.inner.bound_device_id = device
        _Stock.bound_device_id.fset(self, device)


def _on_both(name: str) -> Callable[..., None]:
    stock = getattr(_Stock, name)

    def method(self: RecordingProcessGroup, *args: Any) -> None:
        stock(self, *args)
        stock(self.inner, *args)

    return method


def _recorded(name: str, operation: str) -> Callable[..., Any]:
    stock = getattr(_Stock, name)

    def method(self: RecordingProcessGroup, *args: Any, **kwargs: Any) -> Any:
        if self.group_desc == APART:  # of a thread: which step and phase it meets is chance, so no call is the k-th
            return stock(self.inner, *args, **kwargs)
        call = _Call(self, operation, stock, args, kwargs)
        work = act(_triggers.at_collective(), call)
        group = self.group_name
        _returned[group] += 1
        _last_returned[group] = operation
        return work

    return method


def _override_methods() -> None:
    for name in ("_register_backend", "_set_default_backend", "_set_group_name", "_set_group_desc"):
        setattr(RecordingProcessGroup, name, _on_both(name))
    for name, operation in _METHODS.items():
        if hasattr(_Stock, name):
            setattr(RecordingProcessGroup, name, _recorded(name, operation))


def returned() -> dict[str, dict[str, Any]]:
    """Group -> ``calls``: how many this process came back from without an error; ``last``: what the last one was."""
    return {group: {"calls": calls, "last": _last_returned[group]} for group, calls in _returned.items()}


def release() -> None:
    """Let go of the groups of a script that is done: gloo's threads end here, with the interpreter unlocked."""
    gc.collect()  # a DDP object that is garbage in a cycle goes first
    _kept.clear()


def install(recorder: Recorder, triggers: Triggers, *, timeout_s: float, safe_teardown: bool = True) -> None:
    """Make every process group from now on a recording one, with collectives bounded by ``timeout_s``.

    The bound replaces the script's own: a run has to end within its deadline.

    Args:
        safe_teardown: keep scripts from hanging or aborting in their teardown; see ``release``.
    """
    global _recorder, _triggers, _keep
    _recorder, _triggers, _keep = recorder, triggers, safe_teardown
    _override_methods()
    _c10d.ProcessGroup = RecordingProcessGroup

    timeout = timedelta(seconds=timeout_s)
    init, make_group = _c10d.init_process_group, _c10d._new_process_group_helper
    takes_it_by_name: Any = (
        torch.distributed.device_mesh
    )  # init_device_mesh() makes the default group, if there is none

    @functools.wraps(init)
    def bounded_init(*args: Any, **kwargs: Any) -> Any:
        kwargs["timeout"] = timeout  # of the rendezvous as well
        recorder.emit(Kind.RENDEZVOUS_START)
        made = init(*args, **kwargs)
        recorder.emit(Kind.RENDEZVOUS_END)
        return made

    @functools.wraps(make_group)
    def recorded_group(group_size: int, group_rank: int, ranks: list[int], *args: Any, **kwargs: Any) -> Any:
        kwargs["timeout"] = timeout
        made = make_group(group_size, group_rank, ranks, *args, **kwargs)
        if isinstance(made[0], RecordingProcessGroup):  # else this rank is no member of it
            name, backend = made[0].group_name, _c10d._world.pg_map[made[0]][0]
            recorder.emit(Kind.GROUP, group=name, ranks=list(ranks or range(group_size)), backend=str(backend))
        return made

    _c10d.init_process_group = dist.init_process_group = takes_it_by_name.init_process_group = bounded_init
    _c10d._new_process_group_helper = recorded_group


def _is_aside() -> bool:
    """Whether this is a Python thread of the script's own; autograd's threads, which send DDP's buckets, are none."""
    if threading.get_ident() == threading.main_thread().ident:
        return False
    return not isinstance(threading.current_thread(), threading._DummyThread)


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from _tensors(value)


def _site() -> str | None:
    """``file:line`` of the innermost frame that is neither torch's nor this package's: the line to look at."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_NOT_THE_SCRIPT):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None
