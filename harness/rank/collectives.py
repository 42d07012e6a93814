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
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch.utils.data import _utils

from harness.checkpoint.exchange import APART
from harness.rank.bad_calls import Call
from harness.rank.calls import members_of
from harness.rank.recorder import Recorder
from harness.rank.triggers import Triggers
from harness.wire import Kind

# Any: what is replaced and what only C++ knows is not in torch's types.
_c10d: Any = c10d
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

_recorder: Recorder
_triggers: Triggers | None  # None: no fault is to come
# Stock groups, held until the script is done. Else a DDP object that outlives destroy_process_group() may be the last
# to hold one, and frees it with the interpreter locked: it waits for gloo's threads, and they for the lock.
_keep = True
_kept: list[Any] = []
# Group -> how many calls the script came back from without an error, whatever became of them further down, and the last
# one. What was sent is on record by itself, so that a call that was answered and never sent shows in the records.
_returned: dict[str, tuple[int, str]] = {}
_raised: dict[str, int] = {}
# What was handed over to be reduced in the running backward pass, as DDP does with its buckets; None outside of one.
reducing: list[Any] | None = None


class RecordingProcessGroup(_Stock):  # type: ignore[misc]
    """A process group that records each collective at issue and sends it through a stock group.

    Attributes:
        inner: the stock group; it has the same backends, name and store.
        calls: number of collectives recorded on this group by this rank.
        sent: how many of them were handed to the stock group.
        name, desc: as C++ knows them, which takes long to ask at each call.
        held: a call that a fault keeps back until the next one has been sent.
    """

    def __init__(self, store: Any, rank: int, size: int) -> None:
        super().__init__(rank, size)  # of the C++ constructors only this one lets methods be overridden
        self.inner = _Stock(store, rank, size)
        if _keep:
            _kept.append(self.inner)
        self.calls = self.sent = 0
        self.name = self.desc = ""
        self.held: Call | None = None

    def _set_group_name(self, name: str) -> None:
        self.name = name
        _Stock._set_group_name(self, name)
        self.inner._set_group_name(name)

    def _set_group_desc(self, desc: str) -> None:
        self.desc = desc
        _Stock._set_group_desc(self, desc)
        self.inner._set_group_desc(desc)

    def record(self, operation: str, args: Any, kwargs: Any, faulted: str | None = None) -> None:
        members = members_of(self.name, operation, args, kwargs, faulted)
        if (returned := _returned.get(self.name)) is not None and returned[0] > self.sent:
            # Said at once: what follows an unsent call may end this process before its last word.
            members += f',"returned":{json.dumps(_told({self.name: returned}))}'
        self.record_members(members)

    def record_members(self, members: str) -> None:
        """The same where the call was encoded when it was asked for, and is sent later."""
        self.calls += 1
        if _recorder.left_out:
            members += f',"left_out":{_recorder.left_out}'
        _recorder.emit_encoded(Kind.COLLECTIVE, f',"call":{self.calls}{members}')

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
    is_reduction = operation == "all_reduce"

    def method(self: RecordingProcessGroup, *args: Any, **kwargs: Any) -> Any:
        if self.desc == APART:  # of a thread: which step and phase it meets is chance, so no call is the k-th
            return stock(self.inner, *args, **kwargs)
        if (held := self.held) is not None:
            held.let_pass()
        fired = None if _triggers is None else _triggers.at_collective()
        try:
            if fired is not None:
                work = fired.fault.replace(Call(self, operation, stock, args, kwargs, fired))
            else:
                self.record(operation, args, kwargs)
                self.sent += 1
                work = stock(self.inner, *args, **kwargs)
            if held is not None:
                self.held = None
                held.issue_held()
            calls, _ = _returned.get(self.name, (0, ""))
            _returned[self.name] = (calls + 1, operation)
        except BaseException:  # what a signal handler raises, too: else the call would be one that nobody asked for
            _raised[self.name] = _raised.get(self.name, 0) + 1
            raise
        if is_reduction and reducing is not None:
            reducing.append(work)
        return work

    return method


_CALL = _recorded("barrier", "barrier").__code__  # of all of them


def _override_methods() -> None:
    for name in ("_register_backend", "_set_default_backend"):
        setattr(RecordingProcessGroup, name, _on_both(name))
    for name, operation in _METHODS.items():
        if hasattr(_Stock, name):
            setattr(RecordingProcessGroup, name, _recorded(name, operation))


def returned() -> dict[str, dict[str, Any]]:
    """Group -> ``calls``: how many this process came back from without an error, ``last``: what the last one was,
    ``raised``: how many raised one, or will never come back: a signal handler ends the process in the middle of them.
    """
    told, within = _told(_returned), _within()
    return {group: counted | {"raised": counted["raised"] + within.count(group)} for group, counted in told.items()}


def _within() -> list[str]:
    """The group of each call that this thread is in the middle of."""
    found = []
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is _CALL and "fired" in frame.f_locals:  # else a fault ends it before it is sent
            found.append(frame.f_locals["self"].name)
        frame = frame.f_back
    return found


def _told(returned: Mapping[str, tuple[int, str]]) -> dict[str, dict[str, Any]]:
    return {
        group: {"calls": calls, "last": last, "raised": _raised.get(group, 0)}
        for group, (calls, last) in returned.items()
    }


def has_failed_in_backward() -> bool:
    """Whether a reduction of the backward pass that an exception has left had failed."""
    return any(map(_has_failed, reducing or ()))


def _has_failed(work: Any) -> bool:
    if work.is_completed():
        return not work.is_success()
    # Gloo's thread fails the future, at which the waiter wakes up, before it completes the work.
    with suppress(RuntimeError):  # a backend without futures
        future = work.get_future()
        if future.done():
            try:
                future.value()
            except RuntimeError:
                return True
    return False


def release() -> None:
    """Let go of the groups of a script that is done: gloo's threads end here, with the interpreter unlocked."""
    # As at any exit: else a loader that is collected waits 5 s for each worker, whose queues are gone by then.
    _utils._set_python_exit_flag()
    gc.collect()  # a DDP object that is garbage in a cycle goes first
    _kept.clear()


@contextmanager
def refused() -> Iterator[None]:
    """Meanwhile a collective that this rank issues raises RuntimeError: its peers would not answer."""
    global _triggers
    triggers, _triggers = _triggers, _Refusing()  # type: ignore[assignment]
    try:
        yield
    finally:
        _triggers = triggers


class _Refusing:
    def at_collective(self) -> None:
        raise RuntimeError("this code runs on one rank alone and must not communicate")


def install(recorder: Recorder, triggers: Triggers, *, timeout_s: float, safe_teardown: bool = True) -> None:
    """Make every process group from now on a recording one, with collectives bounded by ``timeout_s``.

    The bound replaces the script's own: a run has to end within its deadline.

    Args:
        safe_teardown: keep scripts from hanging or aborting in their teardown; see ``release``.
    """
    global _recorder, _triggers, _keep
    _recorder, _triggers, _keep = recorder, triggers if triggers.has_faults else None, safe_teardown
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
            members = [*map(int, ranks or range(group_size))]  # those given may be numpy's
            recorder.emit(Kind.GROUP, group=name, ranks=members, backend=str(backend))
        return made

    _c10d.init_process_group = dist.init_process_group = takes_it_by_name.init_process_group = bounded_init
    _c10d._new_process_group_helper = recorded_group
