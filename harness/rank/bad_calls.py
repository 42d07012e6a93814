"""One collective call that a fault acts on, or in place of (harness.faults.base.Call)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as _C_module

from harness.faults.base import CollectiveFault, Side
from harness.rank import bits
from harness.rank.calls import members_of, numel_of, sent, tensors_in
from harness.rank.connections import shut_down_all_but
from harness.rank.triggers import Fired

_C: Any = _C_module  # Any: what only C++ knows is not in torch's types
_Stock: Any = _C_module.ProcessGroup


class Call:
    """See harness.faults.base.Call.

    Args:
        group: the RecordingProcessGroup that was called.
        stock: the stock group's method of this call.
        fired: the fault that acts; None for a call that is one of its acts.
    """

    def __init__(
        self,
        group: Any,
        operation: str,
        stock: Callable[..., Any],
        args: Any,
        kwargs: Any,
        fired: Fired[CollectiveFault] | None = None,
    ) -> None:
        self._group, self._operation, self._stock, self._args, self._kwargs = group, operation, stock, args, kwargs
        self._fired = fired
        self._members = ""  # of a call that waits: what is recorded of it, asked where the script called

    def tell(self, **measured: Any) -> None:
        assert self._fired is not None, "only a fault tells"
        self._fired.tell(**measured)

    def issue(self, faulted: str | None = None) -> Any:
        self._group.record(self._operation, self._args, self._kwargs, faulted)
        self._group.sent += 1
        return self._stock(self._group.inner, *self._args, **self._kwargs)

    def completed(self) -> Any:
        self._group.record(self._operation, self._args, self._kwargs, "skipped")
        return self._done()

    def issue_like(self, numel: int | None = None) -> None:
        given = sent(self._operation, self._args)
        dtype, device = (given[0].dtype, given[0].device) if given else (torch.float32, torch.device("cpu"))
        scratch = [torch.zeros(numel_of(given) if numel is None else numel, dtype=dtype, device=device)]
        if self._operation == "broadcast":
            extra = Call(self._group, "broadcast", _Stock.broadcast, (scratch, *self._args[1:]), self._kwargs)
        else:
            extra = Call(self._group, "all_reduce", _Stock.allreduce, (scratch, dist.AllreduceOptions()), {})
        extra.issue("extra").wait()  # here, so that an error of it counts as one of communication

    def issue_twice(self) -> Any:
        self.issue().wait()
        return self.issue("extra")

    def issue_after_the_next(self) -> Any:
        self._members = members_of(self._group.name, self._operation, self._args, self._kwargs, None)
        self._group.held = self
        self._group.sent += 1  # it is on its way: else the next call's record would miss it
        return self._done()

    def let_pass(self) -> None:
        """The next one is sent before it; the backend may abort of that."""
        self.tell(before_it=self._group.calls + 1)

    def issue_held(self) -> None:
        """Send what waited for the next one, and wait for it: no one else will."""
        self._group.record_members(self._members)
        self._stock(self._group.inner, *self._args, **self._kwargs).wait()

    def issue_in(self, dtype: str) -> Any:
        given = sent(self._operation, self._args)
        was = str(given[0].dtype).removeprefix("torch.") if given else None
        wanted = getattr(torch, dtype)
        args = _mapped(self._args, lambda tensor: tensor.to(wanted, copy=True))
        self.tell(before=was, after=dtype)  # first: a backend may abort of what comes now
        Call(self._group, self._operation, self._stock, args, self._kwargs).issue().wait()
        for mine, changed in zip(tensors_in(self._args[:1]), tensors_in(args[:1]), strict=True):
            mine.copy_(changed)
        return self._done()

    def issue_reduced_by(self, reduce_op: str) -> Any:
        options = [value for value in (*self._args, *self._kwargs.values()) if hasattr(value, "reduceOp")]
        was = [_name_of(value.reduceOp) for value in options]
        args = tuple(_reduced_by(value, reduce_op) for value in self._args)
        kwargs = {name: _reduced_by(value, reduce_op) for name, value in self._kwargs.items()}
        self.tell(before=was[0] if was else None, after=reduce_op)
        return Call(self._group, self._operation, self._stock, args, kwargs).issue()

    def issue_flipped(self, side: Side, index: int, bit: int) -> Any:
        if side == "sent":
            self._flip("what was sent", sent(self._operation, self._args), index, bit)
            return self.issue()
        work = self.issue()
        work.wait()
        self._flip("what came back", tensors_in(self._args[:1]), index, bit)
        return work

    def issue_aborted(self) -> Any:
        communicators = [name for name in self._group.inner._device_types if name.type != "cpu"]
        if communicators:
            self._group.inner.abort()
        store_port = int(os.environ.get("MASTER_PORT", 0))
        self.tell(connections=shut_down_all_but(store_port), communicators=len(communicators))
        return self.issue()

    def _flip(self, label: str, tensors: list[torch.Tensor], index: int, bit: int) -> None:
        """Of several tensors as of one: the index goes through them in their order."""
        for tensor in tensors:
            if index < tensor.numel():
                self.tell(**bits.flip(label, tensor.detach(), index, bit))
                return
            index -= tensor.numel()
        self.tell(problem=f"there is no such element in {label}: it has {numel_of(tensors)}")

    def _done(self) -> Any:
        """A work handle that is done."""
        future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
        future.set_result(tensors_in(self._args[:1]))  # what a bucket's waiter takes as the reduced values
        return _C._create_work_from_future(future)


def _mapped(values: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Arguments like these, with ``change(tensor)`` for each tensor, in lists and tuples too."""
    if isinstance(values, torch.Tensor):
        return change(values)
    if isinstance(values, (list, tuple)):
        return type(values)(_mapped(value, change) for value in values)
    return values


def _name_of(reduce_op: Any) -> str:
    names = _C.ReduceOp.RedOpType.__members__
    return next((name for name, op in names.items() if int(op) == hash(reduce_op)), str(reduce_op))


def _reduced_by(options: Any, reduce_op: str) -> Any:
    """A copy of a call's options with another reduce operation; what has none stays as it is."""
    if not hasattr(options, "reduceOp"):
        return options
    changed = type(options)()
    for name in dir(options):
        if not name.startswith("_"):
            setattr(changed, name, getattr(options, name))
    changed.reduceOp = dist.ReduceOp(getattr(_C.ReduceOp.RedOpType, reduce_op))
    return changed
