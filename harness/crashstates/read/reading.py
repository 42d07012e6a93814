"""What the user's load makes of a state. States that differ only in what it does not look at are read once."""

from __future__ import annotations

import itertools
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from harness.crashstates.ranks import markers
from harness.crashstates.ranks.forked import Closing
from harness.crashstates.ranks.outcome import Loaded, Outcome, Raised
from harness.crashstates.ranks.session import LOAD_S, Session
from harness.crashstates.read.disk import Disk
from harness.crashstates.read.looks import LOOKING, Looker, Looks
from harness.crashstates.read.memo import Memo
from harness.crashstates.read.questions import Outside, View, Views
from harness.crashstates.record.strace import Call
from harness.crashstates.record.tracing import attach
from harness.crashstates.scratch import scratch
from harness.crashstates.tree import Visible
from harness.errors import LaunchError, RecordError

_STRING_LIMIT_BYTES = 48  # markers; names are always whole
_MOST_AHEAD = 10_000  # states that are had and looked at while ranks load
_LOOK_S = 0.001  # how often to see whether they have
_COMPARED_AGAIN = 4  # times as many loads later
_LOADS_AHEAD = 3  # before a comparison: fresh ranks take about as long to meet

_CURE = "see that nothing else traces these processes, or ends strace, and run again"

T = TypeVar("T")


@dataclass(slots=True)
class _Ahead(Generic[T]):
    """One of several states: what it belongs to, and what load makes of it once that is known."""

    item: T
    view: View
    outcome: Outcome | None


class Doubtful(Exception):
    """Ranks that went on after they had raised may have been misled by it: read all again without ``keeps_raised``."""


class Reader(Closing):
    """The session's ranks, loading one state after the other from ``root``. A context manager.

    Args:
        root: where the states are put: the directory that was recorded, since files may hold its path. Whatever is
            in it is removed; its parent must be there.
        deadline_s: how long one load may take.
        is_fresh: fork the ranks anew for each read; None: only if there is one. Ranks that are kept are compared with
            fresh ones now and then, and at the end: where they differ, load keeps something in memory, and all are
            fresh from then on.
        keeps_raised: ranks that are kept go on when all of them raised the same, which leaves more behind in memory.

    Attributes:
        reads: how often load was really called.
        answered: states whose outcome was known, since they differ only where the reader did not look.
        problems: why outcomes may depend on more than the state, each a sentence.
    """

    def __init__(
        self,
        session: Session,
        root: Path,
        *,
        deadline_s: float = LOAD_S,
        is_fresh: bool | None = None,
        keeps_raised: bool = False,
    ) -> None:
        self.reads = 0
        self.answered = 0
        self.problems: list[str] = []
        self._directory = root.absolute()
        self._root = os.path.realpath(root)
        self._deadline_s = deadline_s
        self._disk = Disk(Path(self._root))
        self._memo = Memo()
        outside = Outside()
        self._views = Views(self._root, outside)
        self._outside_written: set[str] = set()
        self._looker = Looker(self._root, str(Path.cwd()), outside)
        self._queue: deque[_Ahead[Any]] = deque()  # states that ``outcomes`` has had, and not told of yet
        self._unknown: deque[_Ahead[Any]] = deque()  # those of them without an outcome; the first is being read
        self._look_s = 0.0  # when to see again whether it is over
        self._next_comparison = 2
        self._uncompared: tuple[Visible, Outcome] | None = None  # the last load
        self._pids: list[int] = []  # of the ranks that load
        self._calls: list[Call] = []  # that they have made since they were asked to
        self._readers = session.start_readers(is_fresh=is_fresh)
        self._readers.keeps_raised = keeps_raised
        self._scratch = ExitStack()
        try:
            directory = self._scratch.enter_context(scratch())
            self._tracer = attach(
                [self._readers.pid],
                directory / "readers.strace",
                calls=LOOKING,
                string_limit_bytes=_STRING_LIMIT_BYTES,
                expects_filters=True,
            )
            self._readers.let_pass()
            self._readers.fork_ahead()
        except BaseException:
            self._scratch.close()
            self._readers.close()
            raise

    def outcome(self, visible: Visible) -> Outcome:
        """What load makes of this state, on each rank; read only if that is not known yet.

        Raises:
            LaunchError: the ranks or strace cannot go on.
            OSError: the state cannot be written.
        """
        view = self._views.of(visible)
        known = self._memo.find(view)
        if known is not None:
            self.answered += 1
            return known
        self._begin(visible)
        return self._ended(view)

    def outcomes(self, items: Iterable[T], visible_of: Callable[[T], Visible]) -> Generator[tuple[T, Outcome]]:
        """What ``outcome`` tells of each item, in their order. While ranks load one, the next are had and looked at.

        Until the last is out, or it is closed, this reader must not be asked anything else.
        """
        queue: deque[_Ahead[T]] = deque()
        self._queue, self._unknown = queue, deque()
        try:
            yield from self._outcomes(queue, iter(items), visible_of)
        except GeneratorExit:
            if self._unknown:
                self._end()
                self._unknown.clear()
            raise

    def _outcomes(
        self, queue: deque[_Ahead[T]], rest: Iterator[T], visible_of: Callable[[T], Visible]
    ) -> Iterator[tuple[T, Outcome]]:
        while True:
            self.look()
            if queue and (outcome := queue[0].outcome) is not None:
                yield queue.popleft().item, outcome
            elif len(queue) < _MOST_AHEAD and (item := next(rest, None)) is not None:
                view = self._views.of(visible_of(item))
                queue.append(_Ahead(item, view, self._memo.find(view)))
                if queue[-1].outcome is not None:
                    self.answered += 1
                    continue
                self._unknown.append(queue[-1])
                if len(self._unknown) == 1:
                    self._begin(view.visible)
            elif self._unknown:
                if len(queue) < _MOST_AHEAD and not self._readers.is_fresh:  # no more will come
                    self._readers.fork_ahead()  # for the last comparison
                self._begin_next()
            else:
                if self._uncompared is not None and not self._readers.is_fresh:
                    self._compared(*self._uncompared)
                return

    def look(self) -> None:
        """Begin the next load if one of ``outcomes`` is over: for an iterable that takes a while for its next item."""
        if self._unknown and time.monotonic() >= self._look_s:
            self._look_s = time.monotonic() + _LOOK_S
            self._calls += self._tracer.new_calls()
            if self._readers.has_answered():
                self._begin_next()

    def _begin_next(self) -> None:
        """End one load, and begin that of the first state whose outcome is not known by then."""
        memo, read = self._memo, self._unknown.popleft()
        read.outcome = self._ended(read.view)
        if self._memo is not memo:  # what was known came of loads that something in memory may have misled
            self._unknown = deque(itertools.dropwhile(lambda one: one is not read, self._queue))
            self._unknown.popleft()
            for one in self._unknown:
                self.answered -= one.outcome is not None
                one.outcome = None
        while self._unknown:
            first = self._unknown[0]
            first.outcome = self._memo.find(first.view)
            if first.outcome is None:
                self._begin(first.view.visible)
                break
            self.answered += 1
            self._unknown.popleft()

    def _ended(self, view: View) -> Outcome:
        """What came of the load that was begun; from now on it is known."""
        outcome, looks = self._end()
        self._uncompared = view.visible, outcome
        if not self._readers.is_fresh and self.reads >= self._next_comparison:
            self._next_comparison *= _COMPARED_AGAIN
            outcome = self._compared(*self._uncompared)
        if not self._readers.is_fresh and self.reads > self._next_comparison - _LOADS_AHEAD:
            self._readers.fork_ahead()
        if seen := looks.outside_seen & self._outside_written:
            self._tell(f"load reads {min(seen)}, which an earlier load has written: its outcome may depend on that")
        else:
            self._memo.add(looks.questions, view, outcome)
        self._outside_written |= looks.outside_written
        return outcome

    def read(self, visible: Visible) -> Outcome:
        """The same by a real load on fresh ranks, whatever is known."""
        self._readers.renew()
        outcome, looks = self._read(visible)
        self._outside_written |= looks.outside_written
        return outcome

    def doubt(self, problem: str) -> None:
        """Two loads of one state differed.

        Raises:
            Doubtful
        """
        if self._readers.has_kept_raised:
            raise Doubtful
        self._tell(problem)

    def expected(self, steps: Iterable[int]) -> dict[int, Outcome]:
        """What the file's ``expected(step)`` returns on each rank; no load finds what that has left in memory."""
        self._readers.prepare()
        self._readers.fork_ahead()
        found = {step: self._readers.expected(step, self._deadline_s) for step in steps}
        self._readers.renew()
        return found

    def close(self) -> None:
        """End the ranks, then strace."""
        try:
            self._readers.close()
        finally:
            try:
                self._tracer.close()
            finally:
                self._scratch.close()

    def _read(self, visible: Visible) -> tuple[Outcome, Looks]:
        self._begin(visible)
        return self._end()

    def _begin(self, visible: Visible) -> None:
        self.reads += 1
        self._disk.put(visible)
        with self._while_traced():
            self._readers.prepare()
            self._pids = self._readers.pids
            self._tracer.new_calls()
            self._calls = []
            self._readers.begin_load(self._directory, self._deadline_s)

    @contextmanager
    def _while_traced(self) -> Iterator[None]:
        """Without strace most calls of the ranks and their parent fail (``unheard``), and they end."""
        try:
            yield
        except LaunchError as error:
            if self._tracer.has_ended():
                raise RecordError(f"strace has ended while there were states to load: {_CURE}") from error
            raise

    def _end(self) -> tuple[Outcome, Looks]:
        with self._while_traced():
            outcome = self._readers.end_load()
        others = set(self._readers.pids_ahead)
        calls = [call for call in (*self._calls, *self._tracer.new_calls()) if call.tid not in others]
        self._require_whole(calls, outcome)
        looks = self._looker.looks(calls, self._pids)
        self._disk.distrust(looks.written)
        return outcome, looks

    def _compared(self, visible: Visible, outcome: Outcome) -> Outcome:
        """What fresh ranks make of the same."""
        self._uncompared = None
        fresh = self.read(visible)
        if fresh != outcome:
            self._readers.is_fresh = True
            self._memo = Memo()
            self.doubt(
                f"load keeps something in memory from call to call: {outcome} after other loads, and {fresh} in a "
                "process of its own; what was told of earlier states may be wrong"
            )
        return fresh

    def _require_whole(self, calls: list[Call], outcome: Outcome) -> None:
        """The record must reach to the end of each load that ended."""
        num_loaded = sum(_is_loaded(call) for call in calls)
        num_ended = sum(isinstance(rank, Loaded | Raised) for rank in outcome.ranks)
        if num_loaded < num_ended:
            raise RecordError(
                f"strace saw the end of {num_loaded} of {num_ended} loads: it has ended, or let go; {_CURE}"
            )

    def _tell(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)


def _is_loaded(call: Call) -> bool:
    if call.name != "write" or len(call.arguments) < 2 or not isinstance(data := call.arguments[1], bytes):
        return False
    mark = markers.parse(data)
    return mark is not None and mark.word == "loaded"
