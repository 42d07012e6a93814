"""What the user's load makes of a state. States that differ only in what it does not look at are read once."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from harness.crashstates.ranks import markers
from harness.crashstates.ranks.forked import Closing
from harness.crashstates.ranks.outcome import Loaded, Outcome, Raised
from harness.crashstates.ranks.session import LOAD_S, Session
from harness.crashstates.read.disk import Disk
from harness.crashstates.read.looks import LOOKING, Looker, Looks
from harness.crashstates.read.memo import Memo
from harness.crashstates.read.questions import Outside, Views
from harness.crashstates.record.strace import Call
from harness.crashstates.record.tracing import attach
from harness.crashstates.scratch import scratch
from harness.crashstates.tree import Visible
from harness.errors import RecordError

_STRING_LIMIT_BYTES = 48  # markers; names are always whole


class Doubtful(Exception):
    """Ranks that went on after they had raised may have been misled by it: read all again without ``keeps_raised``."""


class Reader(Closing):
    """The session's ranks, loading one state after the other from ``root``. A context manager.

    Args:
        root: where the states are put: the directory that was recorded, since files may hold its path. Whatever is
            in it is removed; its parent must be there.
        deadline_s: how long one load may take.
        is_fresh: fork the ranks anew for each read; None: only if there is one. Ranks that are kept are compared with
            fresh ones now and then: where they differ, load keeps something in memory, and all are fresh from then on.
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
        self._next_comparison = 2
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
            )
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
        outcome, looks = self._read(visible)
        if not self._readers.is_fresh and self.reads >= self._next_comparison:
            self._next_comparison = 2 * self.reads
            outcome = self._compared(visible, outcome)
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

    def expected(self, step: int) -> Outcome:
        """What the file's ``expected(step)`` returns on each rank."""
        return self._readers.expected(step, self._deadline_s)

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
        self.reads += 1
        self._disk.put(visible)
        self._readers.prepare()
        pids = self._readers.pids
        self._tracer.new_calls()
        outcome = self._readers.load(self._directory, self._deadline_s)
        calls = self._tracer.new_calls()
        self._require_whole(calls, outcome)
        looks = self._looker.looks(calls, pids)
        self._disk.distrust(looks.written)
        return outcome, looks

    def _compared(self, visible: Visible, outcome: Outcome) -> Outcome:
        """What fresh ranks make of the same."""
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
                f"strace saw the end of {num_loaded} of {num_ended} loads: it has ended, or let go; "
                "see that nothing else traces these processes, and run again"
            )

    def _tell(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)


def _is_loaded(call: Call) -> bool:
    if call.name != "write" or len(call.arguments) < 2 or not isinstance(data := call.arguments[1], bytes):
        return False
    mark = markers.parse(data)
    return mark is not None and mark.word == "loaded"
