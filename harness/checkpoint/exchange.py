"""How the ranks vote: each tells all, then all know the same and act the same.

One small collective a vote, on the default process group, so that it works wherever the training itself does; no rank
ever raises alone. Votes of a thread beside the training have a gloo group of their own: collectives of one group from
two threads would meet in another order on each rank. Without a process group the world is this one process.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as dist

from harness.errors import CheckpointError

_SIZE_BYTES = 8
_FIRST_BYTES = 4096  # holds any ordinary vote; a longer one costs a second collective
_MOST_BYTES = 64 << 20


class Exchange(Protocol):
    """Anything that can pass small values around between the ranks of one job."""

    @property
    def rank(self) -> int: ...

    @property
    def world_size(self) -> int: ...

    def gather(self, message: bytes) -> list[bytes]:
        """Every rank's message, by rank; all ranks call it together."""

    def apart(self, user: object) -> Exchange:
        """One between the same ranks for ``user`` alone: no other messages meet its, so that a thread may use it.

        All ranks call it together; again for the same user it is the same one.
        """


def agree(exchange: Exchange, label: str, action: Callable[[], Any], failure: type[CheckpointError]) -> list[Any]:
    """Do ``action`` on this rank, tell all ranks how it went, and go on together or not at all.

    Args:
        label: which vote this is; ranks that come with different ones are out of step.
        action: returns a JSON value.

    Returns:
        what every rank's action returned, by rank.

    Raises:
        failure: on all ranks, if the action failed on any or they are out of step; names each such rank.
    """
    value, error = None, None
    try:
        value = action()
    except Exception as caught:  # whatever it is, the others wait for this rank's vote
        error = caught
    words = None if error is None else f"{type(error).__name__}: {error}"
    mine = json.dumps([label, value, words]).encode()
    messages = exchange.gather(mine)
    if messages[exchange.rank] != mine:  # else an old vote, still in the memory, might pass for this one
        raise failure(f"{label}: this rank's own vote did not come back: the votes were never exchanged") from error
    try:
        votes = [_parse_vote(message) for message in messages]
    except ValueError as unreadable:
        raise failure(f"{label}: a rank's vote is unreadable ({unreadable}); the ranks are out of step") from error
    if len({vote[0] for vote in votes}) > 1:
        places = ", ".join(f"rank {rank} at {vote[0]!r}" for rank, vote in enumerate(votes))
        raise failure(f"the ranks are out of step: {places}; all must save and load together, at the same step")
    if failed := [(rank, vote[2]) for rank, vote in enumerate(votes) if vote[2] is not None]:
        together = failure(f"{label}: " + "; ".join(f"rank {rank}: {words}" for rank, words in failed))
        together.ranks = tuple(rank for rank, _ in failed)
        raise together from error
    return [vote[1] for vote in votes]


def _parse_vote(message: bytes) -> list[Any]:
    vote = json.loads(message)
    if not isinstance(vote, list) or len(vote) != 3 or not isinstance(vote[0], str):
        raise ValueError(f"{message[:80]!r} is no vote")
    return vote


class Alone:
    """One process, no process group."""

    rank = 0
    world_size = 1

    def gather(self, message: bytes) -> list[bytes]:
        return [message]

    def apart(self, user: object) -> Exchange:
        return self


APART = "checkpoint votes beside the training"  # the description of their process group
# user -> group of the training -> group of the user
_apart: weakref.WeakKeyDictionary[object, weakref.WeakKeyDictionary[dist.ProcessGroup, weakref.ref[dist.ProcessGroup]]]
_apart = weakref.WeakKeyDictionary()


class ProcessGroupExchange:
    """A process group: gloo, NCCL, or what the harness wraps around them.

    Args:
        group: None takes the default one.

    Raises:
        RuntimeError: from every call once the group has been destroyed.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        group = group or dist.group.WORLD
        assert group is not None  # there is a default group wherever this is made
        # Weakly: whoever held it longer than destroy_process_group() would end gloo's threads at a bad moment.
        self._group = weakref.ref(group)
        self.rank = dist.get_rank(group)
        self.world_size = dist.get_world_size(group)
        self._device = control_device(dist.get_backend_config(group))

    def gather(self, message: bytes) -> list[bytes]:
        head = len(message).to_bytes(_SIZE_BYTES, "little") + message[: _FIRST_BYTES - _SIZE_BYTES]
        heads = self._gather_bytes(head, _FIRST_BYTES)
        sizes = [int.from_bytes(h[:_SIZE_BYTES], "little") for h in heads]
        messages = [h[_SIZE_BYTES:][:size] for h, size in zip(heads, sizes, strict=True)]
        rest_bytes = max(sizes) - (_FIRST_BYTES - _SIZE_BYTES)
        if 0 < rest_bytes <= _MOST_BYTES:
            rests = self._gather_bytes(message[_FIRST_BYTES - _SIZE_BYTES :], rest_bytes)
            messages = [(m + rest)[:size] for m, rest, size in zip(messages, rests, sizes, strict=True)]
        return messages

    def apart(self, user: object) -> Exchange:
        group, groups = self._alive(), _apart.setdefault(user, weakref.WeakKeyDictionary())
        made = groups[group]() if group in groups else None
        if made is None:
            made = dist.new_group(dist.get_process_group_ranks(group), backend="gloo", group_desc=APART)
            groups[group] = weakref.ref(made)
        return ProcessGroupExchange(made)

    def _alive(self) -> dist.ProcessGroup:
        if (group := self._group()) is None:
            raise RuntimeError(
                "the process group was destroyed while a save was pending; call the store's wait() before "
                "destroy_process_group()"
            )
        return group

    def _gather_bytes(self, data: bytes, length: int) -> list[bytes]:
        mine = torch.frombuffer(bytearray(data.ljust(length, b"\0")), dtype=torch.uint8).to(self._device)
        received = [bytearray(length) for _ in range(self.world_size)]
        on_cpu = [torch.frombuffer(buffer, dtype=torch.uint8) for buffer in received]
        everyones = [tensor.to(self._device) for tensor in on_cpu]  # on the CPU these are the buffers themselves
        dist.all_gather(everyones, mine, group=self._alive())
        for tensor, gathered in zip(on_cpu, everyones, strict=True):
            if gathered is not tensor:
                tensor.copy_(gathered)
        return [bytes(buffer) for buffer in received]


def control_device(backends: str) -> torch.device:
    """Where votes live, from torch's list of backends, such as ``cpu:gloo,cuda:gloo`` or ``cuda:nccl``."""
    devices = [pair.partition(":")[0] for pair in backends.split(",")]
    if "cpu" in devices:
        return torch.device("cpu")
    return torch.device(devices[0], torch.accelerator.current_device_index())


def current_exchange() -> Exchange:
    """The exchange of the process group that exists now."""
    return ProcessGroupExchange() if dist.is_available() and dist.is_initialized() else Alone()
