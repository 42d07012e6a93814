"""Who knew what: vector clocks over the operations of the ranks, joined by the messages that they send one another."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

_CONNECTED = re.compile(r"(TCP|TCPv6|UNIX-STREAM|UNIX-SEQPACKET):\[(.+)->(.+)\]")

Clock = tuple[int, ...]  # per rank: how many of its operations are known to have happened


def stream(path: str, *, is_sender: bool) -> str | None:
    """One direction of a connection, as both of its ends call it; None: no connection, or one without an order.

    Args:
        path: what strace saw behind the descriptor: ``TCP:[here->there]``, ``pipe:[7]``.
    """
    if path.startswith("pipe:"):
        return path
    match = _CONNECTED.fullmatch(path)
    if match is None:
        return None
    here, there = match[2], match[3]
    return f"{here}->{there}" if is_sender else f"{there}->{here}"


@dataclass
class _Stream:
    ends: list[int] = field(default_factory=list)  # bytes that had been sent after each message
    clocks: list[Clock] = field(default_factory=list)
    received_bytes: int = 0


class Clocks:
    """What each rank knows. A connection carries bytes: who has read the n-th knows what went before its sending.

    Threads that are none of Python's (``apart``: their process) read ahead: what they have learned the rank knows only
    when they meet, or when one of them does something that a crash can undo. Among themselves they know it at once. And
    what they send, they may send late: it tells what the rank knew when it handed it to them.
    """

    def __init__(self, ranks: int) -> None:
        self._known = [[0] * ranks for _ in range(ranks)]
        self._apart: dict[int, Clock] = {}
        self._issued: dict[int, Clock] = {}
        self._streams: defaultdict[str, _Stream] = defaultdict(_Stream)

    def of(self, rank: int, apart: int | None = None) -> Clock:
        known = tuple(self._known[rank])
        return _both(known, self._apart[apart]) if apart in self._apart else known

    def tick(self, rank: int) -> Clock:
        """What ``rank`` knows once it has done one more operation."""
        self._known[rank][rank] += 1
        return self.of(rank)

    def issue(self, rank: int, apart: int) -> None:
        """``rank`` hands a message to these threads of its."""
        self._issued[apart] = self.of(rank)

    def meet(self, rank: int, apart: int) -> None:
        """``rank`` learns of all that these threads of its have learned."""
        if (clock := self._apart.pop(apart, None)) is not None:
            self.join(rank, clock)

    def join(self, rank: int, clock: Sequence[int]) -> None:
        """``rank`` learns of all that ``clock`` knows."""
        self._known[rank] = list(_both(self._known[rank], clock))

    def send(self, rank: int, path: str, size_bytes: int, apart: int | None = None) -> None:
        """``rank`` begins to send: what it does from now on is not in the message."""
        if name := stream(path, is_sender=True):
            line = self._streams[name]
            line.ends.append((line.ends[-1] if line.ends else 0) + size_bytes)
            line.clocks.append(self._told(rank, apart))

    def _told(self, rank: int, apart: int | None) -> Clock:
        """What a message tells that is sent now."""
        if apart is None or apart not in self._issued:
            return self.of(rank, apart)
        return _both(self._issued[apart], self._apart.get(apart, self._issued[apart]))

    def receive(self, rank: int, path: str, size_bytes: int, apart: int | None = None) -> None:
        """``rank`` has received."""
        if name := stream(path, is_sender=False):
            line = self._streams[name]
            line.received_bytes += size_bytes
            message = bisect_left(line.ends, line.received_bytes)
            if message == len(line.ends):
                return  # its sender is not traced
            if apart is None:
                self.join(rank, line.clocks[message])
            else:
                self._apart[apart] = _both(self._apart.get(apart, line.clocks[message]), line.clocks[message])


def _both(one: Sequence[int], other: Sequence[int]) -> Clock:
    return tuple(map(max, one, other))
