"""The controller's handle on a user's file: ranks that save, and ranks that load; see host for the other end."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.crashstates.ranks.forked import Asked, Child, Closing, Parent
from harness.crashstates.ranks.hosting import START_S, Host
from harness.crashstates.ranks.outcome import Died, Hung, Outcome
from harness.errors import LaunchError, SaverError

SAVE_S = 60.0
LOAD_S = 20.0
_MOST_GROUPS = 2  # that run at a time, and so need files of their own for what they write


class SaveFailedError(SaverError):
    """A save did not go well on all ranks.

    Attributes:
        outcome: what came of it on each.
    """

    def __init__(self, text: str, outcome: Outcome) -> None:
        super().__init__(text)
        self.outcome = outcome


class Session(Closing):
    """One user's file, imported; a context manager: at its end all of its processes are gone.

    Args:
        file: has ``save(directory, step)`` and ``load(directory)``, perhaps ``ranks``, ``steps``, ``expected(step)``.
        host: where to import it; None: a host of its own.

    Attributes:
        ranks, steps: as the file says, or 1 and (1, 2, 3).
        has_expected: the file has ``expected(step)``.

    Raises:
        SaverError: the file cannot be imported, or lacks what it needs; says which, and what is allowed.
        LaunchError: the host did not start or not answer.
    """

    def __init__(self, file: Path, *, host: Host | None = None) -> None:
        self.file = Path(file).absolute()
        self._host = host or Host()
        self._owns_host = host is None
        self._is_open = True
        self._started: list[Savers | Readers] = []
        try:
            self._me, self._directory = self._host.open_file(self.file)
            facts = self._facts()
        except BaseException:
            self._is_open = False
            self._close_host()
            raise
        self.ranks: int = facts["ranks"]
        self.steps: tuple[int, ...] = tuple(facts["steps"])
        self.has_expected: bool = facts["has_expected"]
        self._parent = Parent(self._me.channel, f"the process that imported {self.file}")

    def start_savers(self) -> Savers:
        """Ranks that are ready to save: forked, process group made; nothing of the user's was called yet."""
        savers = Savers(self.file, self.ranks, self._parent, self._directory)
        self._started.append(savers)
        return savers

    def start_readers(self, *, is_fresh: bool | None = None) -> Readers:
        """A process that forks ranks that load, as many and as often as is needed.

        Args:
            is_fresh: fork the ranks anew for every load, so that what a load leaves in its process cannot help or
                harm the next one; None: only if there is one rank, since a group of several takes a while to meet.
        """
        is_fresh = self.ranks == 1 if is_fresh is None else is_fresh
        directory = self._directory / f"readers-{len(self._started)}"
        readers = Readers(self.file, self.ranks, self._parent, directory, is_fresh=is_fresh)
        self._started.append(readers)
        return readers

    def close(self) -> None:
        """End all of its processes.

        Raises:
            LaunchError: something is left.
        """
        if not self._is_open:
            return
        self._is_open = False
        try:
            self._parent.end()
        finally:
            for started in self._started:
                started.forget()
            self._host.end(self._me)
            self._close_host()

    def _facts(self) -> dict[str, Any]:
        """What is in the file; its process is ended if that is nothing good."""
        try:
            facts = self._host.receive(self._me, time.monotonic() + START_S)
            if facts is None:
                how, words = self._me.how_it_ended, self._me.last_words()
                raise SaverError(f"{self.file}: its process ended ({how}) while it was imported\n{words}".rstrip())
            if "error" in facts:
                raise SaverError(facts["error"])
        except TimeoutError:
            stack = self._host.stack_of(self._me)
            self._host.end(self._me)
            raise SaverError(f"{self.file}: was not imported within {START_S:g} s; it was at\n{stack}") from None
        except SaverError:
            self._host.end(self._me)
            raise
        except LaunchError:  # the host is gone, and this process with it
            self._me.channel.close()
            raise
        return facts

    def _close_host(self) -> None:
        if self._owns_host:
            self._host.close()


class _Ranks(Closing):
    """N forked ranks with their process group, to be started again after each failure."""

    def __init__(self, role: str, file: Path, world_size: int, parent: Parent, directory: Path) -> None:
        self.file = file
        self._role = role
        self._world_size = world_size
        self._parent = parent
        self._directory = directory
        self._ranks: list[Child] = []
        self._ending: list[Child] = []
        self._is_ready = False
        self._num_forked = 0

    def _fork(self) -> None:
        """Ask for N ranks, without waiting for them."""
        self._is_ready = False
        self._ranks = self._forked()

    def _forked(self) -> list[Child]:
        """N new ranks, which meet without any more help: they find the port of their store in their channels."""
        self._num_forked += 1
        name = f"{self._role}-{self._num_forked % _MOST_GROUPS}"
        children = [
            self._parent.fork(self._role, self._directory, f"{name}-{rank}", rank=rank)
            for rank in range(self._world_size)
        ]
        if self._world_size > 1:
            with socket.create_server(("127.0.0.1", 0), backlog=self._world_size) as listening:
                meeting = {"port": listening.getsockname()[1]}
                for rank, child in enumerate(children):
                    with suppress(OSError):  # it has ended: that is found when it should be ready
                        child.channel.send(meeting, [listening] if rank == 0 else [])
        return children

    def _await_ready(self) -> None:
        """Wait until those before are gone and these can be asked."""
        if self._is_ready:
            return
        self._parent.await_ends(self._ending)
        self._ending = []
        until_s = time.monotonic() + START_S
        for rank in range(self._world_size):
            self._hello(rank, until_s)
        self._is_ready = True

    def _hello(self, rank: int, until_s: float) -> None:
        child = self._ranks[rank]
        try:
            message = self._parent.receive(child, until_s)
        except TimeoutError:
            stack = self._parent.stack_of(child)
            raise LaunchError(f"{self.file}: rank {rank} was not ready within {START_S:g} s\n{stack}") from None
        if message is None:
            words = child.last_words()
            raise LaunchError(f"{self.file}: rank {rank} ended ({child.how_it_ended}) before it was ready\n{words}")

    def _end(self) -> None:
        """Have the ranks killed; they are waited for later."""
        self._parent.kill(self._ranks)
        self._ending += self._ranks
        self._ranks = []
        self._is_ready = False

    def close(self) -> None:
        """End the ranks, and wait for it."""
        self._end()
        self._parent.await_ends(self._ending)
        self._ending = []

    def forget(self) -> None:
        """They were ended by others."""
        for child in self._ranks:
            child.channel.close()
        self._ranks, self._ending, self._is_ready = [], [], False


class Savers(_Ranks):
    """N ranks; a context manager that ends them.

    Attributes:
        pids: by rank; each is the process that calls ``save`` (attach strace here).
    """

    def __init__(self, file: Path, world_size: int, parent: Parent, directory: Path) -> None:
        super().__init__("saver", file, world_size, parent, directory)
        self._fork()
        self._await_ready()
        for child in self._ranks:
            parent.await_pid(child)
        self.pids = tuple(child.pid for child in self._ranks)

    def save(self, step: int, directory: Path, deadline_s: float = SAVE_S, **hardship: Any) -> None:
        """All ranks: marker ``begin STEP``, ``save(directory, step)``, marker ``ack STEP``; returns when all are done.

        Args:
            hardship: for the ranks, as ``rank.be_saver`` knows it.

        Raises:
            SaveFailedError: a rank raised, ended, or did not return in time; ``outcome`` says so of each rank. The
                ranks are ended by then: start others.
        """
        if not self._ranks:
            raise SaverError(f"{self.file}: its ranks were ended after an earlier save had failed; start others")
        request = {"do": "save", "step": step, "directory": str(directory), **hardship}
        outcome, _ = Asked(self._parent, self._ranks, request, deadline_s).result()
        if outcome.has_returned:
            return
        rank = outcome.ranks.index(outcome.cause)
        words = self._ranks[rank].last_words()
        self.close()
        text = f"{self.file}: save of step {step}: rank {rank} {outcome.cause}"
        if isinstance(outcome.cause, Hung):
            text += f"\n{outcome.cause.stack}"
        elif words or isinstance(outcome.cause, Died):
            text += f"\n{words}"
        raise SaveFailedError(text.rstrip(), outcome)


class Readers(_Ranks):
    """Ranks that load; forked anew when one of them failed. A context manager that ends them.

    Attributes:
        is_fresh: they are forked anew for every load; may be changed.
        keeps_raised: they go on when all raised the same; may be changed.
        has_kept_raised: ranks that had raised have gone on.
        pid: their common parent, which runs nothing of the user's: attach strace here, and all ranks are traced.
    """

    def __init__(self, file: Path, world_size: int, parent: Parent, directory: Path, *, is_fresh: bool) -> None:
        directory.mkdir()
        self.is_fresh = is_fresh
        self.keeps_raised = False
        self.has_kept_raised = False
        self._me = parent.fork("readers", directory, "readers")
        self._above = parent
        super().__init__(
            "reader", file, world_size, Parent(self._me.channel, f"the readers' parent of {file}"), directory
        )
        self._num_loads = 0
        self._asked: Asked | None = None
        self._has_loaded = False  # these ranks
        self._ahead: list[Child] = []  # fresh ones beside them
        self._preloaded: set[str] = set()
        parent.await_pid(self._me)
        self.pid = self._me.pid

    def let_pass(self) -> None:
        """Once strace is attached, expecting filters: calls that say nothing of files no longer stop these ranks."""
        self._parent.let_pass()

    def load(self, directory: Path, deadline_s: float = LOAD_S) -> Outcome:
        """All ranks: marker ``load N``, ``load(directory)``, marker ``loaded N``; what came of it.

        Raises:
            LaunchError: the ranks cannot be started or ended.
        """
        self.begin_load(directory, deadline_s)
        return self.end_load()

    def begin_load(self, directory: Path, deadline_s: float = LOAD_S) -> None:
        """The same without waiting for it: ``end_load`` tells what came of it."""
        self._num_loads += 1
        self._ask({"do": "load", "n": self._num_loads, "directory": str(directory)}, deadline_s)

    def has_answered(self) -> bool:
        """Whether ``end_load`` need not wait."""
        return self._asked is None or self._asked.is_over()

    def end_load(self) -> Outcome:
        """What came of the load that was begun."""
        return self._answer()

    def expected(self, step: int, deadline_s: float = LOAD_S) -> Outcome:
        """What the file's ``expected(step)`` returns on each rank."""
        self._ask({"do": "expected", "step": step}, deadline_s)
        return self._answer()

    def prepare(self) -> None:
        """Have the next load's ranks ready, as ``load`` would; for a caller that measures, or traces, only the load."""
        if self.is_fresh:
            self.renew()
        if not self._ranks:
            self._fork()
        self._await_ready()

    def fork_ahead(self) -> None:
        """Ask for the fresh ranks that the next ``renew`` takes, so that they meet while those that are there load."""
        self._ahead = self._ahead or self._forked()

    def renew(self) -> None:
        """Let the next load have ranks that have not loaded anything yet."""
        if self._has_loaded:
            self._end()

    def await_ended(self) -> None:
        """Wait until the ranks that were replaced by fresh ones are gone, and what they had locked is free."""
        self._parent.await_ends(self._ending)
        self._ending = []

    @property
    def pids(self) -> list[int]:
        """Of the ranks that are there, by rank."""
        return [child.pid for child in self._ranks]

    @property
    def pids_ahead(self) -> list[int]:
        """Of those that ``fork_ahead`` asked for, as far as they are there."""
        return [child.pid for child in self._ahead if child.pid]

    def close(self) -> None:
        """End them.

        Raises:
            LaunchError: something is left.
        """
        if self._me.status is None:
            self._parent.end()
            self._above.await_ends([self._me])
        self.forget()

    def forget(self) -> None:
        self._ranks += self._ahead
        self._ahead = []
        super().forget()
        self._me.channel.close()
        if self._me.status is None:
            self._me.status = 0

    def _ask(self, request: dict[str, Any], deadline_s: float) -> None:
        self.prepare()
        self._has_loaded = True
        self._asked = Asked(self._parent, self._ranks, request, deadline_s)

    def _answer(self) -> Outcome:
        assert self._asked is not None, "nothing was begun"
        outcome, imported = self._asked.result()
        self._asked = None
        if imported - self._preloaded:  # else all who are forked from now on would import it
            self._parent.preload(sorted(imported - self._preloaded))
            self._preloaded |= imported
        if not self.is_fresh and self.keeps_raised and outcome.has_raised_alike:
            self.has_kept_raised = True
        elif self.is_fresh or not outcome.has_returned:
            self._end()
            self._fork()
        return outcome

    def _forked(self) -> list[Child]:
        ahead, self._ahead = self._ahead, []
        return ahead or super()._forked()

    def _fork(self) -> None:
        super()._fork()
        self._has_loaded = False


__all__ = ["Host", "Readers", "SaveFailedError", "Savers", "Session"]
