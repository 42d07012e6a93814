"""The controller's handles on processes that fork others, and on those; see nursery for the other end."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness.crashstates.ranks.channel import Channel, wait_readable
from harness.crashstates.ranks.outcome import Died, Hung, Loaded, Outcome, RankOutcome, Waiting, from_wire
from harness.errors import LaunchError

END_S = 20.0  # above what the other end takes to end all that is below it
_ENDED_S = 10.0  # from a SIGKILL, or a closed channel, to the news of the end
_STACK_S = 2.0
_GRACE_S = 0.5  # how long the other ranks may still answer once one has failed
_TAIL_BYTES = 4000


class Closing:
    """A context manager that closes itself."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class Child:
    """A forked process.

    Attributes:
        pid: 0 until the parent has told it.
        status: exit code, negative: the signal; None while it runs.
        output, stacks: files that it writes to.
    """

    def __init__(self, channel: Channel, directory: Path, name: str) -> None:
        self.channel = channel
        self.pid = 0
        self.status: int | None = None
        self.output = directory / f"{name}.txt"
        self.stacks = directory / f"{name}.stacks"

    def last_words(self) -> str:
        """The end of what it wrote to stdout and stderr, and its stacks, if they were dumped."""
        return "\n".join(filter(None, (_tail(self.output), _tail(self.stacks))))

    @property
    def how_it_ended(self) -> str:
        assert self.status is not None
        return signal.Signals(-self.status).name if self.status < 0 else f"exit code {self.status}"


class Parent:
    """A process that forks.

    Args:
        name: what it is, for error texts.
    """

    def __init__(self, channel: Channel, name: str) -> None:
        self.channel = channel
        self._name = name
        self._unnumbered: deque[Child] = deque()
        self._running: dict[int, Child] = {}
        self._left: bool | None = None

    def fork(self, role: str, directory: Path, name: str, **fields: Any) -> Child:
        """Ask for a child; it has no pid yet."""
        ours, theirs = Channel.pair()
        child = Child(ours, directory, name)
        request = {"fork": role, "output": str(child.output), "stacks": str(child.stacks), **fields}
        try:
            self._send(request, [theirs])
        except LaunchError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._unnumbered.append(child)
        return child

    def preload(self, modules: Sequence[str]) -> None:
        self._send({"import": list(modules)})

    def let_pass(self) -> None:
        """Now that strace follows it, it and its children need not stop for calls that say nothing of files."""
        self._send({"let_pass": True})

    def take(self) -> None:
        """Take in one message."""
        received = self.channel.receive()
        if received is None:
            raise LaunchError(f"{self._name} has ended unexpectedly; was it killed (out of memory, perhaps)?")
        message, _ = received
        if "forked" in message:
            child = self._unnumbered.popleft()
            child.pid = message["forked"]
            self._running[child.pid] = child
        elif "ended" in message:
            self._running.pop(message["ended"]).status = message["status"]
        elif "left" in message:
            self._left = message["left"]

    def receive(self, child: Child, until_s: float) -> dict[str, Any] | None:
        """The child's next message; None: it has ended, and is reaped.

        Raises:
            TimeoutError: neither by then (``time.monotonic()``).
        """
        while True:
            ready = wait_readable([child.channel, self.channel], until_s)
            if child.channel in ready:
                received = child.channel.receive()
                if received is None:
                    self.await_ends([child])
                    return None
                return received[0]
            if not ready:
                raise TimeoutError
            self.take()
            if child.status is not None and not child.channel.has_message():
                return None  # something that it started holds its channel

    def stack_of(self, child: Child) -> str:
        """All threads' stacks of a child that runs, empty if it gives none."""
        self.await_pid(child)
        self._send({"signal": signal.SIGUSR1, "pid": child.pid})
        until_s = time.monotonic() + _STACK_S
        while not (stack := _tail(child.stacks)) and time.monotonic() < until_s:
            wait_readable([self.channel], time.monotonic() + 0.01)
        return stack

    def kill(self, children: Sequence[Child]) -> None:
        """Have them killed, without waiting for it."""
        for child in children:
            if child.status is None:
                self.await_pid(child)
                self._send({"signal": signal.SIGKILL, "pid": child.pid})
            child.channel.close()

    def await_ends(self, children: Sequence[Child]) -> None:
        """Wait until they are reaped.

        Raises:
            LaunchError: one does not end.
        """
        until_s = time.monotonic() + _ENDED_S
        while any(child.status is None for child in children):
            if not wait_readable([self.channel], until_s):
                pids = [child.pid for child in children if child.status is None]
                raise LaunchError(f"{self._name}: the processes {pids} did not end within {_ENDED_S:g} s")
            self.take()

    def end(self) -> None:
        """End it and all that is below it; returns once it says that nothing is left.

        Raises:
            LaunchError: something is, or it did not answer.
        """
        self._send({"end": True})
        until_s = time.monotonic() + END_S
        while self._left is None:
            if not wait_readable([self.channel], until_s):
                raise LaunchError(f"{self._name} did not end within {END_S:g} s")
            self.take()
        self.channel.close()
        if self._left:
            raise LaunchError(f"{self._name}: a process that it started cannot be ended; look for it with ps -ef")

    def await_pid(self, child: Child) -> None:
        """Return once ``child.pid`` is known; the child itself may have spoken before its parent told."""
        until_s = time.monotonic() + _ENDED_S
        while child.pid == 0:
            if not wait_readable([self.channel], until_s):
                raise LaunchError(f"{self._name} did not fork within {_ENDED_S:g} s")
            self.take()

    def _send(self, request: dict[str, Any], channels: Sequence[Channel] = ()) -> None:
        try:
            self.channel.send(request, channels)
        except OSError as error:
            raise LaunchError(f"{self._name} is gone ({error})") from error


class Asked:
    """A call that all ranks were asked to make at once.

    A rank that fails decides: the others have a short while to answer too. Those that have not answered by then, or
    by the deadline, still run.
    """

    def __init__(self, parent: Parent, ranks: Sequence[Child], message: dict[str, Any], deadline_s: float) -> None:
        self._parent = parent
        self._num_ranks = len(ranks)
        self._deadline_s = deadline_s
        self._until_s = time.monotonic() + deadline_s
        self._waiting = dict(enumerate(ranks))
        self._outcomes: dict[int, RankOutcome] = {}
        self._imported: set[str] = set()
        for child in ranks:
            with suppress(OSError):  # it has ended: that is found below
                child.channel.send(message)

    def is_over(self, until_s: float = 0.0) -> bool:
        """Take in the answers that are there, or come until then (``time.monotonic()``): whether these are all."""
        while self._waiting and (ready := self._ready(until_s)):
            if self._parent.channel in ready:
                self._parent.take()
            for rank, child in list(self._waiting.items()):
                self._take(rank, child, is_ready=child.channel in ready)
        return not self._waiting or time.monotonic() >= self._until_s

    def result(self) -> tuple[Outcome, set[str]]:
        """Wait for it; returns what came of it, and the modules that the ranks had to import."""
        self.is_over(self._until_s)
        has_failed = any(not isinstance(outcome, Loaded) for outcome in self._outcomes.values())
        for rank, child in self._waiting.items():
            self._outcomes[rank] = Waiting() if has_failed else Hung(self._deadline_s, self._parent.stack_of(child))
        return Outcome(tuple(self._outcomes[rank] for rank in range(self._num_ranks))), self._imported

    def _ready(self, until_s: float) -> list[Channel]:
        channels = [self._parent.channel, *(child.channel for child in self._waiting.values())]
        return wait_readable(channels, min(until_s, self._until_s))

    def _take(self, rank: int, child: Child, *, is_ready: bool) -> None:
        if is_ready and (received := child.channel.receive()) is not None:
            outcome = from_wire(received[0]["outcome"])
            self._imported |= set(received[0]["imported"])
        elif is_ready or (child.status is not None and not child.channel.has_message()):
            self._parent.await_ends([child])
            outcome = Died(child.how_it_ended, child.last_words())
        else:
            return
        self._outcomes[rank] = outcome
        del self._waiting[rank]
        if not isinstance(outcome, Loaded):
            self._until_s = min(self._until_s, time.monotonic() + _GRACE_S)


def _tail(path: Path) -> str:
    try:
        return path.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip()
    except FileNotFoundError:
        return ""
