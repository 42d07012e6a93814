"""One user's file, from its recording to what its states are worth."""

from __future__ import annotations

import dataclasses
import itertools
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from harness.crashstates.calibration import calibrate, verdict_of
from harness.crashstates.explore import DEFAULT_MOST, Explorer, Share, State
from harness.crashstates.findings import StaticFinding, static_findings
from harness.crashstates.garbage import rarely_collected
from harness.crashstates.models import MODEL_NAMES, ModelName, Situation
from harness.crashstates.operation import Operation, Recording
from harness.crashstates.ranks.outcome import Outcome
from harness.crashstates.ranks.session import LOAD_S, Host, Session
from harness.crashstates.read.reading import Doubtful, Reader
from harness.crashstates.record.recording import late_changes, record
from harness.crashstates.shrink import Loss, losses, lost_operations, shrink
from harness.crashstates.sweep import Sweep, Swept
from harness.crashstates.verdict import SAFE, Truth, Verdict

MOST_FINDINGS = 24  # what else fails is counted with them, if it loses as much
MOST_READS = 500  # to shrink them


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One way to fail, at its smallest; or what is safe though much was lost.

    Attributes:
        model: the weakest that allows it.
        reason: what the reader did.
        losses: what was lost; empty: nothing, the processes died right after ``last``.
        last: the last operation that was done, which must not come before what was lost is durable.
        next: the one that was not done any more; None at the end of a save.
        state: a state that shows it.
        num_states: how many states fail with it, or have the verdict.
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
        safe: of each safe verdict one state after the first save had begun: most acknowledged, then most lost.
        static: orders that are wrong by themselves.
        sweeps: what came of injected trouble.
        calibration: verdicts of undisturbed saves that do not load, or not as ``expected(step)`` says.
    """

    file: Path
    recording: Recording | None = None
    problems: list[str] = field(default_factory=list)
    truth: Truth = field(default_factory=lambda: Truth({}))
    shares: list[Share] = field(default_factory=list)
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    safe: list[Finding] = field(default_factory=list)
    static: list[StaticFinding] = field(default_factory=list)
    sweeps: list[Sweep] = field(default_factory=list)
    calibration: list[tuple[Verdict, str]] = field(default_factory=list)
    reads: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """``valid``, ``broken`` or ``unknown`` (also if no crash was tried, and no trouble came up)."""
        is_known = self.calibration or self.verdicts or any(sweep.num_fired for sweep in self.sweeps)
        if self.problems or not is_known:
            return "unknown"
        return "broken" if self.failing else "valid"

    @property
    def failing(self) -> frozenset[Verdict]:
        """All verdicts but the safe ones: of states, of undisturbed saves, and of those with trouble."""
        seen = {*self.verdicts, *(verdict for verdict, _ in self.calibration)}
        return frozenset(seen - SAFE) | {verdict for sweep in self.sweeps for verdict, _ in sweep.failures}

    def take(self, swept: Swept) -> None:
        """Add what came of sweeps."""
        self.sweeps += swept.sweeps
        self.problems += [problem for problem in swept.problems if problem not in self.problems]
        self.calibration += [wrong for wrong in swept.calibration if wrong not in self.calibration]


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
        on_state: told of every state with its verdict; of all again if what a failed load left behind misled the next.

    Raises:
        SaverError: the file cannot be used, or its save fails undisturbed.
        TraceError: strace is not there or may not trace.
    """
    found = Examination(file=file)

    def reading(*, keeps_raised: bool) -> Reader:
        return Reader(session, root, deadline_s=load_deadline_s, is_fresh=False, keeps_raised=keeps_raised)

    def judged(reader: Reader) -> Examination:
        anew = Examination(file=file, recording=recording, static=found.static, seconds=found.seconds)
        _Examiner(anew, session, recording, reader, on_state).run(models, most, seed)
        anew.reads = reader.reads
        anew.problems += reader.problems
        if anew.problems:
            anew.problems = [*late_changes(recording), *anew.problems]
        return anew

    with rarely_collected(100_000), Session(file, host=host) as session:
        with reading(keeps_raised=True) as reader:  # before there is anything to read: its ranks meet meanwhile
            with _timed(found, "record"):
                recording = found.recording = record(session, root, session.steps)
            found.static = static_findings(recording)
            found.problems += recording.problems
            if found.problems:
                found.problems = [*late_changes(recording), *found.problems]  # what the others may well come from
                return found
            with _timed(found, "judge"), suppress(Doubtful):
                return judged(reader)
        with _timed(found, "judge"), reading(keeps_raised=False) as reader:
            return judged(reader)


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
        explorer = Explorer(self._recording, models, most, seed, self._reader.look)
        expected: dict[int, Outcome] | None = None
        if self._session.has_expected:
            expected = self._reader.expected(self._recording.steps)
        undisturbed = {step: self._undisturbed(explorer, step) for step in (0, *self._recording.steps)}
        states = itertools.chain(undisturbed.values(), explorer.states())
        outcomes = self._reader.outcomes(states, lambda state: state.visible)
        loaded = {step: next(outcomes)[1] for step in undisturbed}
        if self._calibrate(loaded, expected):
            self._judge(explorer, outcomes)
        outcomes.close()
        if self._found.calibration or self._found.problems:  # of these loads hardly any was compared
            for step, state in undisturbed.items():
                if not self._reader.problems:
                    self._confirm(state, loaded[step])

    def _judge(self, explorer: Explorer, outcomes: Iterable[tuple[State, Outcome]]) -> None:
        failing: list[_Failing] = []
        safest: dict[Verdict, State] = {}
        hardest: dict[Verdict, tuple[int, int]] = {}  # of those
        for state, outcome in outcomes:
            verdict, _ = self._verdict_of(state, outcome)
            self._found.verdicts[verdict] += 1
            if verdict not in SAFE:
                failing.append(_Failing(state.situation, state.chosen, verdict))
            elif state.begun and state.acked >= hardest.get(verdict, (0, 0))[0]:
                hardship = _hardship(state)
                if hardship > hardest.get(verdict, (-1, 0)):
                    safest[verdict], hardest[verdict] = state, hardship
            if self._on_state is not None:
                self._on_state(state, verdict)
        self._found.shares = explorer.shares
        self._found.findings = self._explain(explorer, failing)
        self._found.safe = [
            self._described(explorer, state, self._found.verdicts[verdict]) for verdict, state in safest.items()
        ]

    @staticmethod
    def _undisturbed(explorer: Explorer, step: int) -> State:
        """What stands once the save of ``step`` is done; 0: before any."""
        situation = explorer.models.at("kill", explorer.models.order.done(step))
        return explorer.state(situation, tuple(unit.kept for unit in situation.units))

    def _calibrate(self, loaded: Mapping[int, Outcome], expected: Mapping[int, Outcome] | None) -> bool:
        """Learn what load returns after undisturbed saves; False if that tells nothing."""
        found = calibrate(loaded, None if expected is None else expected.__getitem__)
        self._found.truth = found.truth
        self._found.calibration += found.wrong
        self._found.problems += found.problems
        return found.is_usable

    def verdict(self, state: State) -> tuple[Verdict, str]:
        return self._verdict_of(state, self._reader.outcome(state.visible))

    def _verdict_of(self, state: State, outcome: Outcome) -> tuple[Verdict, str]:
        return verdict_of(outcome, self._found.truth, state.acked, state.begun)

    def _explain(self, explorer: Explorer, failing: Sequence[_Failing]) -> list[Finding]:
        """Findings that together explain the failing states, the most frequent first."""
        known: dict[tuple[object, ...], Finding] = {}
        counts: Counter[tuple[object, ...]] = Counter()
        first_read = self._reader.reads
        # The weakest model and few losses first: what they explain need not be shrunk again.
        for fail in sorted(failing, key=lambda fail: (MODEL_NAMES.index(fail.situation.model), len(fail.lost))):
            signature = next((s for s, finding in known.items() if _explains(finding, fail)), None)
            has_reads_left = self._reader.reads - first_read < MOST_READS
            if signature is None and has_reads_left and len(known) < MOST_FINDINGS:
                finding = self._finding(explorer, fail)
                signature = _signature(finding)
                if signature not in known:
                    self._confirm(finding.state, self._reader.outcome(finding.state.visible))
                    known[signature] = finding
            if signature is not None:
                counts[signature] += 1
        return [dataclasses.replace(known[signature], num_states=n) for signature, n in counts.most_common()]

    def _confirm(self, state: State, usual: Outcome) -> None:
        """What fails must fail in new processes as well."""
        fresh = self._reader.read(state.visible)
        if usual != fresh:
            self._reader.doubt(
                f"load is not repeatable: of the same directory it once {usual}, and in new processes it {fresh}"
            )

    def _finding(self, explorer: Explorer, fail: _Failing) -> Finding:
        def is_same(state: State) -> bool:
            return self.verdict(state)[0] == fail.verdict

        return self._described(explorer, shrink(explorer, explorer.state(fail.situation, fail.chosen), is_same))

    def _described(self, explorer: Explorer, state: State, num_states: int = 0) -> Finding:
        verdict, reason = self.verdict(state)
        order, cut = explorer.models.order, state.situation.cut
        ahead = [order.next(cut, rank) for rank in order.ahead(cut)]
        return Finding(
            verdict=verdict,
            model=state.situation.model,
            reason=reason,
            losses=tuple(losses(state.situation, state.chosen)),
            last=order.operations(cut)[-1],
            next=min(ahead, key=lambda op: op.index, default=None),
            state=state,
            num_states=num_states,
        )


@dataclass(frozen=True, slots=True)
class _Failing:
    """A failing state without its tree, of which there may be thousands."""

    situation: Situation
    chosen: tuple[int, ...]
    verdict: Verdict

    @property
    def lost(self) -> frozenset[int]:
        return _lost(losses(self.situation, self.chosen))


def _hardship(state: State) -> tuple[int, int]:
    """How much there was to lose, and how much of what was done the crash took."""
    units = zip(state.situation.units, state.chosen, strict=True)
    return state.acked, sum(fate != unit.kept for unit, fate in units)


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
