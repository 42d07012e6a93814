"""Ranks as threads of one process: the store's votes without a process group, for building and for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
DEADLINE_S = 20


class _Table:
    """What the ranks of one world put down for each other, vote by vote."""

    def __init__(self, world_size: int, apart: _Table | None = None) -> None:
        self.messages = [b""] * world_size
        self.barrier = threading.Barrier(world_size, timeout=DEADLINE_S)
        self.apart = apart


class ThreadExchange:
    """One rank's place at the table (see ``harness.checkpoint.exchange.Exchange``)."""

    def __init__(self, rank: int, world_size: int, table: _Table) -> None:
        self.rank = rank
        self.world_size = world_size
        self._table = table

    def gather(self, message: bytes) -> list[bytes]:
        self._table.messages[self.rank] = message
        self._table.barrier.wait()
        messages = list(self._table.messages)
        self._table.barrier.wait()  # nobody puts down the next message before all have read this one
        return messages

    def apart(self, user: object) -> ThreadExchange:
        return ThreadExchange(self.rank, self.world_size, self._table.apart or self._table)

    def leave(self) -> None:
        """This rank is gone: whoever waits for it, now or later, is told (``threading.BrokenBarrierError``)."""
        for table in (self._table, self._table.apart):
            if table is not None:
                table.barrier.abort()


def run_ranks(world_size: int, act: Callable[[ThreadExchange], T]) -> list[T | Exception]:
    """Run ``act`` once a rank, side by side; returns what each returned or raised, by rank."""
    table = _Table(world_size, apart=_Table(world_size))

    def one(rank: int) -> T | Exception:
        try:
            return act(ThreadExchange(rank, world_size, table))
        except Exception as error:
            return error

    with ThreadPoolExecutor(world_size) as pool:
        return list(pool.map(one, range(world_size)))


def all_of(results: list[T | Exception]) -> list[T]:
    """The results of a run in which no rank may fail."""
    for result in results:
        if isinstance(result, Exception):
            raise result
    return [result for result in results if not isinstance(result, Exception)]
