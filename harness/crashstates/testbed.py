"""Where troubles are tried: saves of a user's file in a fresh directory each, one of them disturbed, then its load."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.crashstates.calibration import Calibration, calibrate, verdict_of
from harness.crashstates.explore import Explorer, State
from harness.crashstates.models import ModelName
from harness.crashstates.operation import Recording
from harness.crashstates.positions import TRACED, Pilot, Position, is_of_no_file, path_below, pilot_of
from harness.crashstates.ranks.forked import Closing
from harness.crashstates.ranks.outcome import Hung, Loaded, Outcome
from harness.crashstates.ranks.session import LOAD_S, Host, SaveFailedError, Savers, Session
from harness.crashstates.read.reading import Reader
from harness.crashstates.record.recording import recorded, traced
from harness.crashstates.record.strace import Call
from harness.crashstates.record.tracing import Tracer, attach
from harness.crashstates.scratch import scratch
from harness.crashstates.trouble.base import Attempt
from harness.crashstates.vain_syncs import without_vain_syncs
from harness.crashstates.verdict import SAFE, Verdict

SAVE_DEADLINE_S = 10.0  # of a save that was disturbed
STOP_S = 20.0
PATIENCE_S = 1.5  # how long a second writer may wait for one that is stopped, before that one goes on
_POLL_S = 0.002
_STOPPED = b"--- stopped by SIGSTOP ---"
_LOSSES: tuple[ModelName, ...] = ("ext4-ordered", "posix-min")
_MOST_STATES = 200
_STRING_LIMIT_BYTES = 64
_MAX_WORDS = 300


class Testbed(Closing):
    """One user's file, ready to be troubled. A context manager.

    Args:
        root: where to save and load; an empty directory.
        host: a process that has imported what the file needs; None: one of its own.
        load_deadline_s, save_deadline_s: what takes longer hangs.

    Attributes:
        calibration: what undisturbed saves load as.
        problems: why nothing, or not all, can be said.

    Raises:
        SaverError: the file cannot be used, or its save fails undisturbed.
        UnavailableError: strace is not there or may not trace.
    """

    __test__ = False  # no test class, for pytest

    def __init__(
        self,
        file: Path,
        root: Path,
        *,
        host: Host | None = None,
        save_deadline_s: float = SAVE_DEADLINE_S,
        load_deadline_s: float = LOAD_S,
    ) -> None:
        self.root = root.absolute()
        self.problems: list[str] = []
        self._file = file
        self._real_root = os.path.realpath(root)
        self._save_deadline_s = save_deadline_s
        self._load_deadline_s = load_deadline_s
        self._own_host = Host() if host is None else None
        self._host = host or self._own_host
        self._second: Session | None = None
        self._reader: Reader | None = None
        try:
            self.session = Session(file, host=self._host)
        except BaseException:
            self._close_host()
            raise
        *self._earlier, self._last = self.session.steps
        try:
            self._readers = self.session.start_readers(is_fresh=True)
            self.calibration = self._calibrate()
            self.problems += self.calibration.problems
            self.pilot, self._undisturbed = self._fly()
            self.problems += self._undisturbed.problems
        except BaseException:
            self.close()
            raise

    # --- what troubles ask

    def positions(self, calls: frozenset[str]) -> list[Position]:
        """Where these calls were made, rank by rank, below the checkpoint directory."""
        return self.pilot.of(calls)

    def file_sizes(self, rank: int) -> list[int]:
        """How many bytes the last save wrote to each file."""
        return sorted(set(self.pilot.bytes_written.get(rank, {}).values()))

    def growth_bytes(self) -> int:
        """What the files of the last save take, in whole pages."""
        page = os.sysconf("SC_PAGE_SIZE")
        return sum(-(-size // page) * page for sizes in self.pilot.bytes_written.values() for size in sizes.values())

    def attempt(
        self,
        what: str,
        position: Position | None,
        *,
        rank: int = 0,
        inject: str | None = None,
        around: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext(),
        has_fired: Callable[[Call], bool] = lambda call: call.injected or call.delayed,
        must_return: bool = False,
        **hardship: Any,
    ) -> Attempt:
        """Save the last step under some trouble, and load.

        Args:
            inject: what strace does to the calls of ``rank``: its ``-e inject=``.
            around: entered, with the rank's process id, while the last step is saved.
            has_fired: whether a call, which is about the directory, shows that the trouble came up.
            must_return: a save that raises is refused.
            hardship: for the ranks, as ``rank.be_saver`` knows it.
        """
        rank = position.rank if position is not None else rank
        with self._prepared() as savers:
            pid = savers.pids[rank]
            traced_pids = savers.pids if inject is None else (pid,)
            cwd = str(Path(f"/proc/{pid}/cwd").readlink())
            with _attached(traced_pids, inject) as tracer:
                with around(pid):
                    outcome = self._save(savers, self._last, **hardship)
                tracer.detach()
                calls = tracer.new_calls()
        attempt = Attempt(what=what, position=position, rank=rank, verdict="not-triggered", saved=_words(outcome))
        hits = [call for call in calls if has_fired(call)]
        strays = [call for call in hits if call.injected and is_of_no_file(call)]
        paths = [path for call in hits if (path := path_below(call, self._real_root, cwd)) is not None]
        if strays or not paths:
            if not hits and not outcome.has_returned:
                self._tell((f"a save failed though nothing was done to it: {_words(outcome)}",))
            return attempt
        if position is not None and paths[0] != position.path and self.pilot.has(position.call, paths[0]):
            return attempt  # strace counts each thread's calls, and another thread came to its k-th first
        attempt = self._judged(_where_it_fired(attempt, paths[0]), outcome)
        if must_return and not outcome.has_returned and attempt.verdict in SAFE:
            return dataclasses.replace(attempt, verdict="refused", loaded="save failed though no call of its did")
        return attempt

    def attempt_and_lose(self, what: str, position: Position, how: str) -> Attempt:
        """Have one sync keep nothing; if the save returns all the same, look at what a power loss then leaves.

        Args:
            how: what strace makes of the call: ``retval=0``, or ``error=EIO``, after which what it should have kept
                is lost for good.
        """
        self._clear()
        spent = {str(r): {position.call: position.total_k} for r in range(self.session.ranks) if r != position.rank}
        inject = f"inject={position.call}:{how}:when={position.total_k}"
        trace = traced(
            self.session,
            self.root,
            self.session.steps,
            inject=[inject],
            deadline_s=self._save_deadline_s,
            spent=spent,
        )
        attempt = Attempt(what=what, position=position, rank=position.rank, verdict="not-triggered")
        failed = [call for call in trace.calls if call.injected and path_below(call, self._real_root) is not None]
        if not failed:
            if trace.failure is not None:
                self._tell((f"a save failed though nothing was done to it: {_words(trace.failure.outcome)}",))
            return attempt
        attempt = _where_it_fired(attempt, path_below(failed[0], self._real_root) or "")
        if trace.failure is not None:
            outcome = trace.failure.outcome
            return self._judged(dataclasses.replace(attempt, saved=_words(outcome)), outcome, step=trace.step)
        recording = recorded(trace.calls, trace.origin, self.session.steps)
        self._tell(recording.problems)
        if how.startswith("error"):
            for call in failed:
                recording = without_vain_syncs(recording, path_below(call, self._real_root) or "", call.t_s)
        verdict, reason = self._worst_after(recording, except_for=self._verdicts_undisturbed)
        return dataclasses.replace(attempt, verdict=verdict, saved="returned", loaded=reason, has_returned=True)

    def attempt_beside(self, position: Position) -> Attempt:
        """Stop a rank after a call, have others save the same step, and let the first go on."""
        if self._second is None:
            self._second = Session(self._file, host=self._host)
        with self._prepared() as first, self._second.start_savers() as second:
            pid = first.pids[position.rank]
            inject = f"{position.call}:signal=SIGSTOP:when={position.k}"
            with _attached((pid,), inject) as tracer, ThreadPoolExecutor(2) as pool:
                ours = pool.submit(self._save, first, self._last, 2 * self._save_deadline_s + PATIENCE_S)
                try:
                    if not _await_stop(tracer, ours):
                        saved = _words(ours.result())
                        return Attempt(
                            what="stopped", position=position, rank=position.rank, verdict="not-triggered", saved=saved
                        )
                    theirs = pool.submit(self._save, second, self._last)
                    wait([theirs], PATIENCE_S)
                finally:
                    if not ours.done():
                        os.kill(pid, signal.SIGCONT)
                outcomes = ours.result(), theirs.result()
        words = f"the first {_words(outcomes[0])}, the second {_words(outcomes[1])}"
        attempt = Attempt(what="stopped after", position=position, rank=position.rank, verdict="hang", saved=words)
        return self._judged(attempt, *outcomes)

    def close(self) -> None:
        """End all processes."""
        try:
            if self._reader is not None:
                self._reader.close()
        finally:
            try:
                if self._second is not None:
                    self._second.close()
            finally:
                try:
                    self.session.close()
                finally:
                    self._close_host()

    # --- undisturbed saves

    def _calibrate(self) -> Calibration:
        self._clear()
        loaded = {0: self._load()}
        self._clear()
        with scratch() as directory:
            with self.session.start_savers() as savers:  # ended before anybody loads: some own their directory
                for step in self.session.steps:
                    savers.save(step, self.root, is_silent=True)
                    shutil.copytree(self.root, directory / str(step), symlinks=True)
            for step in self.session.steps:
                self._clear()
                shutil.copytree(directory / str(step), self.root, symlinks=True, dirs_exist_ok=True)
                loaded[step] = self._load()
        expected = self._readers.expected if self.session.has_expected else None
        return calibrate(loaded, expected)

    def _fly(self) -> tuple[Pilot, Recording]:
        self._clear()
        trace = traced(self.session, self.root, self.session.steps, calls=TRACED)
        if trace.failure is not None:
            raise trace.failure
        pilot = pilot_of(trace.calls, trace.origin, self._real_root, self._last)
        return pilot, recorded(trace.calls, trace.origin, self.session.steps)

    @cached_property
    def _verdicts_undisturbed(self) -> frozenset[Verdict]:
        """How a power loss after the undisturbed save may end: not the trouble's doing."""
        return frozenset(verdict for verdict, _ in self._verdicts_after(self._undisturbed))

    # --- saving and judging

    @contextmanager
    def _prepared(self) -> Iterator[Savers]:
        """Ranks that have saved all but the last step, into a directory that holds nothing else."""
        self._clear()
        with self.session.start_savers() as savers:
            for step in self._earlier:
                savers.save(step, self.root, is_silent=True)
            yield savers

    def _save(self, savers: Savers, step: int, deadline_s: float | None = None, **hardship: Any) -> Outcome:
        try:
            savers.save(step, self.root, deadline_s or self._save_deadline_s, is_silent=True, **hardship)
        except SaveFailedError as error:
            return error.outcome
        return Outcome((Loaded("saved"),) * self.session.ranks)

    def _judged(self, attempt: Attempt, *saves: Outcome, step: int | None = None) -> Attempt:
        """The attempt with what its directory loads as, and with what comes of another try if it had failed.

        Args:
            step: which was saved; None: the last. A thread that is new in each save may be hit in an earlier one.
        """
        step = self._last if step is None else step
        has_returned = any(isinstance(rank, Loaded) for save in saves for rank in save.ranks)
        before = max((earlier for earlier in self._earlier if earlier < step), default=0)
        acked = step if has_returned else before
        verdict, reason = verdict_of(self._load(), self.calibration.truth, acked, step)
        hung = any(isinstance(rank, Hung) for save in saves for rank in save.ranks)
        if hung and verdict in SAFE:
            verdict, reason = "hang", "save did not come back"
        again = None
        if not hung and not any(save.has_returned for save in saves):
            with self.session.start_savers() as savers:
                retry = self._save(savers, step)
            if retry.has_returned:
                again = verdict_of(self._load(), self.calibration.truth, step, step)
            else:
                again = ("hang" if isinstance(retry.cause, Hung) else "refused"), _words(retry)
        return dataclasses.replace(attempt, verdict=verdict, loaded=reason, has_returned=has_returned, again=again)

    def _worst_after(self, recording: Recording, except_for: frozenset[Verdict]) -> tuple[Verdict, str]:
        """Of the states that a power loss after the last save may leave, the worst: mixtures before losses."""
        lost: tuple[Verdict, str] | None = None
        for verdict, reason in self._verdicts_after(recording):
            if verdict in SAFE or verdict in except_for:
                continue
            if verdict not in ("lost-ack", "lost-work"):
                return verdict, f"after a power loss the reader {reason}"
            lost = lost or (verdict, f"after a power loss the reader {reason}")
        return lost or ("safe-new", "every power loss after it leaves the new state")

    def _verdicts_after(self, recording: Recording) -> Iterator[tuple[Verdict, str]]:
        if self._reader is None:
            self._reader = Reader(self.session, self.root, deadline_s=self._load_deadline_s)
        explorer = Explorer(recording, _LOSSES, _MOST_STATES)
        for state in explorer.states_at(explorer.models.order.done(self._last)):
            yield self._verdict_of_state(self._reader, state)

    def _verdict_of_state(self, reader: Reader, state: State) -> tuple[Verdict, str]:
        return verdict_of(reader.outcome(state.visible), self.calibration.truth, state.acked, state.begun)

    def _load(self) -> Outcome:
        outcome = self._readers.load(self.root, self._load_deadline_s)
        self._readers.await_ended()  # else one of them might still own the directory when the next save comes
        return outcome

    def _clear(self) -> None:
        """Empty the directory, which may be one that something is mounted on."""
        self.root.mkdir(exist_ok=True)
        self.root.chmod(0o700)
        for entry in self.root.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def _tell(self, problems: tuple[str, ...]) -> None:
        self.problems += [problem for problem in problems if problem not in self.problems]

    def _close_host(self) -> None:
        if self._own_host is not None:
            self._own_host.close()


@contextmanager
def _attached(pids: tuple[int, ...], inject: str | None) -> Iterator[Tracer]:
    expressions = () if inject is None else (f"inject={inject}",)
    with (
        scratch() as directory,
        attach(
            pids,
            directory / "strace.log",
            calls=TRACED,
            string_limit_bytes=_STRING_LIMIT_BYTES,
            inject=expressions,
        ) as tracer,
    ):
        yield tracer


def _where_it_fired(attempt: Attempt, path: str) -> Attempt:
    """Names may be other ones in each save."""
    if attempt.position is None:
        return attempt
    return dataclasses.replace(attempt, position=dataclasses.replace(attempt.position, path=path))


def _await_stop(tracer: Tracer, save: Future[Outcome]) -> bool:
    """Whether the traced rank was stopped before its save was done; waits for either."""
    until_s = time.monotonic() + STOP_S
    while time.monotonic() < until_s:
        if _STOPPED in tracer.log_path.read_bytes():
            return True
        if save.done():
            return False
        wait([save], _POLL_S)
    return False


def _words(outcome: Outcome) -> str:
    """What a save did, short enough for a line."""
    text = "returned" if outcome.has_returned else " ".join(str(outcome).split())
    return text if len(text) <= _MAX_WORDS else f"{text[:_MAX_WORDS]} ..."
