"""How the ranks vote: each tells all, then all know the same and act the same.

One small collective a vote, on the default process group, so that it works wherever the training itself does; no rank
ever raises alone. Without a process group the world is this one process.
"""

from __future__ import annotations

import json
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
    messages = exchange.gather(json.dumps([label, value, words]).encode())
    try:
        votes = [_parse_vote(message) for message in messages]
    except ValueError as unreadable:
        raise failure(f"{label}: a rank's vote is unreadable ({unreadable}); the ranks are out of step") from error
    if len({vote[0] for vote in votes}) > 1:
        places = ", ".join(f"rank {rank} at {vote[0]!r}" for rank, vote in enumerate(votes))
        raise failure(f"the ranks are out of step: {places}; all must save and load together, at the same step")
    if failed := [(rank, vote[2]) for rank, vote in enumerate(votes) if vote[2] is not None]:
        raise failure(f"{label}: " + "; ".join(f"rank {rank}: {words}" for rank, words in failed)) from error
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


class ProcessGroupExchange:
    """The default process group: gloo, NCCL, or what the harness wraps around them."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self._device = control_device(dist.get_backend_config())

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

    def _gather_bytes(self, data: bytes, length: int) -> list[bytes]:
        mine = torch.frombuffer(bytearray(data.ljust(length, b"\0")), dtype=torch.uint8).to(self._device)
        everyones = [torch.empty_like(mine) for _ in range(self.world_size)]
        dist.all_gather(everyones, mine)
        return [bytes(tensor.tolist()) for tensor in everyones]


def control_device(backends: str) -> torch.device:
    """Where votes live, from torch's list of backends, such as ``cpu:gloo,cuda:gloo`` or ``cuda:nccl``."""
    devices = [pair.partition(":")[0] for pair in backends.split(",")]
    if "cpu" in devices:
        return torch.device("cpu")
    return torch.device(devices[0], torch.accelerator.current_device_index())


def current_exchange() -> Exchange:
    """The exchange of the process group that exists now."""
    return ProcessGroupExchange() if dist.is_available() and dist.is_initialized() else Alone()
