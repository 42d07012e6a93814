"""One user's file, from its recording to what its states are worth."""

from __future__ import annotations

import dataclasses
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness.crashstates.explore import DEFAULT_MOST, Explorer, Share, State
from harness.crashstates.findings import StaticFinding, static_findings
from harness.crashstates.models import MODEL_NAMES, ModelName, Situation
from harness.crashstates.operation import Operation, Recording
from harness.crashstates.ranks.outcome import Hung, Loaded, Outcome
from harness.crashstates.ranks.session import LOAD_S, Host, Session
from harness.crashstates.read.reading import Reader
from harness.crashstates.record.recording import record
from harness.crashstates.shrink import Loss, losses, lost_operations, shrink
from harness.crashstates.verdict import SAFE, Truth, Verdict, judge

MOST_FINDINGS = 24  # each is shrunk by some dozens of loads; what else fails is counted with them
MOST_SHRUNK = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One way to fail, at its smallest.

    Attributes:
        model: the weakest that allows it.
        reason: what the reader did.
        losses: what was lost; empty: nothing, the processes died right after ``last``.
        last: the last operation that was done, which must not come before what was lost is durable.
        next: the one that was not done any more; None at the end of a save.
        state: a state that shows it.
        num_states: how many states fail with it.
    """

    verdict: Verdict
    model: ModelName
    reason: str
    losses: tuple[Loss, ...]
    last: Operation
    next: Operation | None
    state: State
    num_states: int


@dataclass(kw_only=True)
class Examination:
    """What is known of a file's save and load.

    Attributes:
        problems: why nothing can be said; empty: something can.
        truth: what load returns after undisturbed saves.
        shares: what of each model was looked at.
        verdicts: how many states have which.
        reads: how often the reader really ran; the other states differ only in what it never looked at.
        static: orders that are wrong by themselves.
        calibration: verdicts of undisturbed saves that do not load, or not as ``expected(step)`` says.
    """

    file: Path
    recording: Recording | None = None
    problems: list[str] = field(default_factory=list)
    truth: Truth = field(default_factory=lambda: Truth({}))
    shares: list[Share] = field(default_factory=list)
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    static: list[StaticFinding] = field(default_factory=list)
    calibration: list[tuple[Verdict, str]] = field(default_factory=list)
    reads: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """``valid``, ``broken`` or ``unknown`` (also if no crash was tried)."""
        if self.problems or not (self.calibration or self.verdicts):
            return "unknown"
        return "broken" if self.calibration or any(v not in SAFE for v in self.verdicts) else "valid"


def examine(
    file: Path,
    root: Path,
    *,
    models: Sequence[ModelName] = MODEL_NAMES,
    most: int = DEFAULT_MOST,
    seed: int = 0,
    host: Host | None = None,
    load_deadline_s: float = LOAD_S,
    on_state: Callable[[State, Verdict], None] | None = None,
) -> Examination:
    """Record one run of the file's save, and judge what its load makes of each state that a crash may leave.

    Args:
        root: where to save and to load; an empty directory.
        host: a process that has imported what the file needs; None: one of its own.
        load_deadline_s: a load that takes longer hangs.
        on_state: told of every state with its verdict.

    Raises:
        SaverError: the file cannot be used, or its save fails undisturbed.
        TraceError: strace is not there or may not trace.
    """
    found = Examination(file=file)
    with Session(file, host=host) as session:
        with _timed(found, "record"):
            recording = found.recording = record(session, root, session.steps)
        found.static = static_findings(recording)
        found.problems += recording.problems
        if found.problems:
            return found
        with Reader(session, root, deadline_s=load_deadline_s) as reader, _timed(found, "judge"):
            _Examiner(found, session, recording, reader, on_state).run(models, most, seed)
            found.reads = reader.reads
            found.problems += reader.problems
    return found


class _Examiner:
    def __init__(
        self,
        found: Examination,
        session: Session,
        recording: Recording,
        reader: Reader,
        on_state: Callable[[State, Verdict], None] | None,
    ) -> None:
        self._found = found
        self._session = session
        self._recording = recording
        self._reader = reader
        self._on_state = on_state

    def run(self, models: Sequence[ModelName], most: int, seed: int) -> None:
        explorer = Explorer(self._recording, models, most, seed)
        if not self._calibrate(explorer):
            return
        failing: list[_Failing] = []
        for state in explorer.states():
            verdict, _ = self.verdict(state)
            self._found.verdicts[verdict] += 1
            if verdict not in SAFE:
                failing.append(_Failing(state.situation, state.chosen, verdict))
            if self._on_state is not None:
                self._on_state(state, verdict)
        self._found.shares = explorer.shares
        self._found.findings = self._explain(explorer, failing)

    def _calibrate(self, explorer: Explorer) -> bool:
        """Learn what load returns after undisturbed saves; False if that tells nothing."""
        loaded: dict[int, Outcome] = {}
        for step in (0, *self._recording.steps):
            situation = explorer.models.at("kill", explorer.models.order.done(step))
            loaded[step] = self._reader.outcome(situation.tree([unit.kept for unit in situation.units]).visible())
        if _digests(loaded[0]) is None:
            self._found.problems.append(f"load of an empty directory {loaded[0]}; return None from it")
            return False
        right = dict(loaded)
        if self._session.has_expected:
            right |= {step: self._reader.expected(step) for step in self._recording.steps}
            if failed := [step for step in right if _digests(right[step]) is None]:
                self._found.problems += [f"expected({step}) {right[step]}" for step in failed]
                return False
        digests = {step: by_rank for step, outcome in right.items() if (by_rank := _digests(outcome)) is not None}
        truth = self._found.truth = Truth(digests)
        for step in self._recording.steps:
            verdict, reason = verdict_of(loaded[step], truth, step, step)
            if verdict not in SAFE:
                self._found.calibration.append((verdict, f"load after an undisturbed save of step {step} {reason}"))
        self._found.problems += _alike(truth)
        return len(digests) == len(right) and not self._found.problems

    def verdict(self, state: State) -> tuple[Verdict, str]:
        return verdict_of(self._reader.outcome(state.visible), self._found.truth, state.acked, state.begun)

    def _explain(self, explorer: Explorer, failing: Sequence[_Failing]) -> list[Finding]:
        """Findings that together explain the failing states, the most frequent first."""
        known: dict[tuple[object, ...], Finding] = {}
        counts: Counter[tuple[object, ...]] = Counter()
        num_shrunk = 0
        # The weakest model and few losses first: what they explain need not be shrunk again.
        for fail in sorted(failing, key=lambda fail: (MODEL_NAMES.index(fail.situation.model), len(fail.lost))):
            signature = next((s for s, finding in known.items() if _explains(finding, fail)), None)
            if signature is None and num_shrunk < MOST_SHRUNK and len(known) < MOST_FINDINGS:
                num_shrunk += 1
                finding = self._finding(explorer, fail)
                signature = _signature(finding)
                known.setdefault(signature, finding)
            if signature is not None:
                counts[signature] += 1
        return [dataclasses.replace(known[signature], num_states=n) for signature, n in counts.most_common()]

    def _finding(self, explorer: Explorer, fail: _Failing) -> Finding:
        def is_same(state: State) -> bool:
            return self.verdict(state)[0] == fail.verdict

        state = shrink(explorer, explorer.state(fail.situation, fail.chosen), is_same)
        usual, fresh = self._reader.outcome(state.visible), self._reader.read(state.visible)
        if usual != fresh:
            words = f"load is not repeatable: of the same directory it once {usual}, and in new processes it {fresh}"
            self._found.problems.append(words)
        order, cut = explorer.models.order, state.situation.cut
        ahead = [order.next(cut, rank) for rank in order.ahead(cut)]
        return Finding(
            verdict=fail.verdict,
            model=state.situation.model,
            reason=self.verdict(state)[1],
            losses=tuple(losses(state.situation, state.chosen)),
            last=order.operations(cut)[-1],
            next=min(ahead, key=lambda op: op.index, default=None),
            state=state,
            num_states=0,
        )


def _alike(truth: Truth) -> Iterator[str]:
    for step, by_rank in truth.digests.items():
        for other, others in truth.digests.items():
            if other < step and by_rank == others:
                when = f"saves of steps {other} and {step}" if other else f"the save of step {step} and before it"
                yield (
                    f"load returns the same after {when}: states cannot be told apart; "
                    "return what was loaded, and let it depend on the step"
                )


def verdict_of(outcome: Outcome, truth: Truth, acked: int, begun: int) -> tuple[Verdict, str]:
    """What came of one load, as a verdict and a reason."""
    if (digests := _digests(outcome)) is None:
        return ("hang" if isinstance(outcome.cause, Hung) else "refused"), str(outcome)
    return judge([truth.steps_of(rank, digest) for rank, digest in enumerate(digests)], acked, begun)


def _digests(outcome: Outcome) -> tuple[str, ...] | None:
    """What each rank loaded; None if one of them did not return."""
    digests = tuple(rank.digest for rank in outcome.ranks if isinstance(rank, Loaded))
    return digests if len(digests) == len(outcome.ranks) else None


@dataclass(frozen=True, slots=True)
class _Failing:
    """A failing state without its tree, of which there may be thousands."""

    situation: Situation
    chosen: tuple[int, ...]
    verdict: Verdict

    @property
    def lost(self) -> frozenset[int]:
        return _lost(losses(self.situation, self.chosen))


def _explains(finding: Finding, fail: _Failing) -> bool:
    """Whether the state lost all that the finding needs, and had come as far."""
    if fail.verdict != finding.verdict or not finding.losses:
        return False
    is_as_far = all(a >= b for a, b in zip(fail.situation.cut, finding.state.situation.cut, strict=True))
    return is_as_far and _lost(finding.losses) <= fail.lost


def _lost(lost: Sequence[Loss]) -> frozenset[int]:
    return frozenset(op.index for loss in lost for op in lost_operations(loss))


def _signature(finding: Finding) -> tuple[object, ...]:
    """Equal for the same thing in another save: by the lines of the script, or else by the files' names."""
    lost = tuple((op.call, _place(op)) for loss in finding.losses for op in lost_operations(loss))
    return finding.verdict, lost, finding.last.call, _place(finding.last)


def _place(op: Operation) -> str:
    return op.site or re.sub(r"\d+", "N", op.path)


@contextmanager
def _timed(found: Examination, what: str) -> Iterator[None]:
    started_s = time.monotonic()
    try:
        yield
    finally:
        found.seconds[what] = time.monotonic() - started_s
