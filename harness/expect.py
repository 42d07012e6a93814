"""Is the run what its scenario expects? Every verdict is weighed; none that is unknown passes.

What each expected outcome demands, beside the numbers that the scenario states:
    clean, recovers   the job ends well, and nothing is broken; for recovers an update must be on record
    stops             the job fails in time, the culprit is named, and nothing durable is damaged
    detected          what the scenario lists is found broken, where it says, and nothing else before it
    refuses           the job fails by a refusal, and nothing durable is damaged
    guaranteed        one of those that follow from what the faults mean (``harness.allowed``), and the end could be
                      compared with that of the fault-free run, if there was an end
Where the scenario names guarantees, those must be valid, and of the others only what makes a run mean something counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import harness.errors as errors
from harness.allowed import allowed
from harness.checks import GUARANTEES, Verdict, check_all
from harness.checks.cause import Cause
from harness.checks.diagnosis import diagnose
from harness.checks.records import each, ended_well, load_of, start_step
from harness.checks.sent import canonical
from harness.counted import counted
from harness.history import Baseline, History
from harness.plan import Broken, Expect, Plan
from harness.vanished import vanished
from harness.wire import Kind

MEANINGFUL = ("FaultFired", "EndsInTime", "NothingLeft")  # without them a run says nothing, whatever it expects
DURABLE = ("OnlyCompleteLoads", "NewestCompleteLoads", "AcknowledgedSurvives", "RetentionSafe")
REFUSALS = frozenset(
    name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, errors.HarnessError)
)
MAIN_COMPARISON = "EndsLikeBaseline"
_HOLDS = ("valid", "not-applicable")


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What the run is worth.

    Attributes:
        headline: one line: what happened, or the first thing that is wrong.
        verdicts: all guarantees, in the order of ``GUARANTEE_NAMES``.
        blamed: the verdicts that keep the run from passing, the most telling first.
        problems: what is wrong beside the verdicts: exit code, number of restarts, step resumed from, what should
            have been found.
        diagnosis: the first cause of each failed launch.
        doubt: why the fault-free run is nothing to compare with, if so; of a run that passed, only where that matters.
        baseline_dir: where the records of that fault-free run are; empty without a doubt.
    """

    outcome: Literal["passed", "failed", "unknown"]
    headline: str
    verdicts: tuple[Verdict, ...]
    blamed: tuple[Verdict, ...]
    problems: tuple[str, ...] = ()
    diagnosis: tuple[Cause, ...] = ()
    doubt: str = ""
    baseline_dir: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Problem:
    """Something beside the verdicts; ``is_open`` where the records cannot tell."""

    text: str
    is_open: bool = False


def needs_baseline(plan: Plan) -> bool:
    """Whether anything that the plan wants judged is judged against the fault-free run."""
    if not plan.guarantees or plan.start_from is not None:  # by it ranks tell at which step they begin
        return True
    return any(
        GUARANTEES[name].needs_baseline for name in (*plan.guarantees, *(b.guarantee for b in plan.expect.broken))
    )


def judge(history: History, baseline: Baseline | None) -> Judgement:
    """Weigh all verdicts against what the scenario expects."""
    verdicts = check_all(history, baseline)
    diagnosis, crash = _diagnose(history, baseline)
    plan = history.plan
    if plan.expect.outcome != "guaranteed":
        return _doubted(_weighed(history, verdicts, diagnosis, crash), plan, baseline)
    given = plan.expect
    judgements = [
        _weighed(replace(history, plan=replace(plan, expect=_narrowed(given, outcome))), verdicts, diagnosis, crash)
        for outcome in allowed(plan, vanished(history, baseline), counted(history))
    ]
    found = _doubted(next((found for found in judgements if found.outcome == "passed"), judgements[0]), plan, baseline)
    if found.outcome == "passed" and found.doubt:
        # Nobody said that this is enough: it would be a promise that all is well but for what the faults mean.
        blamed = [verdict for verdict in verdicts if verdict.guarantee == MAIN_COMPARISON]
        unknown = _judgement("unknown", verdicts, blamed, [], diagnosis)
        return replace(unknown, doubt=found.doubt, baseline_dir=found.baseline_dir)
    return found


def _doubted(found: Judgement, plan: Plan, baseline: Baseline | None) -> Judgement:
    """The judgement, with what is wrong with the fault-free run: if it passed, where that leaves something unknown."""
    is_unknown = any(v.guarantee == MAIN_COMPARISON and v.outcome == "unknown" for v in found.verdicts)
    is_asked_for = not plan.guarantees or MAIN_COMPARISON in plan.guarantees
    if baseline is None or not baseline.reason or not is_asked_for or (found.outcome == "passed" and not is_unknown):
        return found
    said = f"; {MAIN_COMPARISON} is unknown" if found.outcome == "passed" else ""
    return replace(found, headline=found.headline + said, doubt=baseline.reason, baseline_dir=baseline.run_dir)


def _narrowed(given: Expect, outcome: Expect) -> Expect:
    """``outcome``, with the numbers that the scenario states beside ``guaranteed``."""
    stated = {name: value for name in ("resume_step", "restarts") if (value := getattr(given, name)) is not None}
    return replace(outcome, **stated)


def _weighed(
    history: History, verdicts: tuple[Verdict, ...], diagnosis: tuple[Cause, ...], crash: list[_Problem]
) -> Judgement:
    """The verdicts, weighed against one outcome."""
    by_name = {verdict.guarantee: verdict for verdict in verdicts}
    blamed = _blamed(history, by_name)
    problems = [*_problems(history, by_name), *crash]
    if history.plan.disarmed or any(v.guarantee == "FaultFired" for v in blamed):
        # Whatever else was seen, it was not this scenario.
        blamed.sort(key=lambda v: v.guarantee != "FaultFired")
        return _judgement("unknown", verdicts, blamed, problems, diagnosis)
    if any(v.outcome != "unknown" for v in blamed) or any(not p.is_open for p in problems):
        told = sorted(blamed, key=lambda v: (v.outcome == "unknown", not _comes_before(v, blamed)))
        return _judgement("failed", verdicts, told, problems, diagnosis)
    if blamed or problems:
        return _judgement("unknown", verdicts, blamed, problems, diagnosis)
    return Judgement(
        outcome="passed",
        headline=_happened(history, by_name),
        verdicts=verdicts,
        blamed=(),
        problems=(),
        diagnosis=diagnosis,
    )


def _judgement(
    outcome: Literal["failed", "unknown"],
    verdicts: tuple[Verdict, ...],
    blamed: list[Verdict],
    problems: list[_Problem],
    diagnosis: tuple[Cause, ...],
) -> Judgement:
    texts = [p.text for p in sorted(problems, key=lambda p: p.is_open)]
    words = {"invalid": "is broken", "unknown": "is unknown", "not-applicable": "does not apply", "valid": "holds"}
    said = [f"{v.guarantee} {words[v.outcome]}{_place(v)}: {v.reason}" for v in blamed]
    return Judgement(
        outcome=outcome,
        headline=" ".join((said + texts)[0].splitlines()),
        verdicts=verdicts,
        blamed=tuple(blamed),
        problems=tuple(texts),
        diagnosis=diagnosis,
    )


def _place(verdict: Verdict) -> str:
    parts = [f"rank {verdict.rank}"] if verdict.rank is not None else []
    parts += [f"step {verdict.step}"] if verdict.step is not None else []
    return f" ({', '.join(parts)})" if parts else ""


def _happened(history: History, verdicts: dict[str, Verdict]) -> str:
    count = sum(v.outcome == "valid" for v in verdicts.values())
    expect = history.plan.expect
    resumed = _resumed_step(history)
    parts: list[str] = [expect.outcome]
    if history.restarts:
        parts.append(f"{history.restarts} restart{'s' * (history.restarts > 1)}")
    if resumed is not None and (history.restarts or history.plan.start_from is not None):
        parts.append(f"resumed from step {resumed}")
    parts += [f"found {_describe(b)}" for b in expect.broken]
    return ", ".join([*parts, f"{count} guarantees hold"])


def _diagnose(history: History, baseline: Baseline | None) -> tuple[tuple[Cause, ...], list[_Problem]]:
    try:
        return tuple(diagnose(history, baseline)), []
    except Exception as error:
        return (), [_Problem(f"the diagnosis itself crashed: {type(error).__name__}: {error}", is_open=True)]


# -- verdicts ------------------------------------------------------------------------------------------------------


def _blamed(history: History, verdicts: dict[str, Verdict]) -> list[Verdict]:
    plan = history.plan
    listed = {b.guarantee for b in plan.expect.broken}
    demanded = {*plan.guarantees}
    if plan.faults or plan.disarmed:
        demanded.add("FaultFired")
    if plan.expect.outcome == "stops":
        demanded.add("CulpritNamed")
    demanded -= set() if plan.disarmed else listed
    blamed = [v for name, v in verdicts.items() if name in demanded and v.outcome != "valid"]
    blamed += [
        verdicts[name]
        for name in _to_hold(history, verdicts)
        if name not in demanded | listed and verdicts[name].outcome not in _HOLDS
    ]
    order = list(verdicts)
    return sorted(blamed, key=lambda v: order.index(v.guarantee))


def _to_hold(history: History, verdicts: dict[str, Verdict]) -> tuple[str, ...]:
    """The guarantees that must be valid or not applicable."""
    plan = history.plan
    if plan.guarantees:
        return MEANINGFUL
    match plan.expect.outcome:
        case "stops":
            return (*MEANINGFUL, "SteadyBefore", "CulpritNamed", *DURABLE)
        case "refuses":
            return (*MEANINGFUL, *DURABLE)
        case "detected":
            return tuple(
                name for name in verdicts if name in MEANINGFUL or not _is_consequence(history, verdicts, name)
            )
        case _:
            return tuple(verdicts)


def _comes_before(verdict: Verdict, blamed: Sequence[Verdict]) -> bool:
    """Whether a launch went on from a wrong state, and all else that is broken may have come of that."""
    others = [other.restart for other in blamed if other.outcome == "invalid" and other.restart is not None]
    is_start = verdict.guarantee == "RollbackExact" and verdict.restart is not None
    return is_start and all(other >= (verdict.restart or 0) for other in others)


def _is_consequence(history: History, verdicts: dict[str, Verdict], name: str) -> bool:
    """Whether this guarantee may be broken or unknown because a listed one was: not broken before the first of them.

    What is unknown says nothing against what was found: a script with a bug often has no sound baseline, for one.
    """
    found = [verdicts[b.guarantee] for b in history.plan.expect.broken]
    if verdicts[name].outcome != "invalid":
        return verdicts[name].outcome == "unknown"
    firsts = [_moment(v) for v in found if v.outcome in ("invalid", "unknown") and v.step is not None]
    return verdicts[name].step is None or not firsts or _moment(verdicts[name]) >= min(firsts)


def _moment(verdict: Verdict) -> tuple[int, int]:
    return verdict.restart or 0, verdict.step or 0


# -- beside the verdicts -------------------------------------------------------------------------------------------


def _problems(history: History, verdicts: dict[str, Verdict]) -> Iterator[_Problem]:
    expect, outcome = history.plan.expect, history.outcome
    code = "none: it had to be ended" if outcome.exit_code is None else outcome.exit_code
    match expect.outcome:
        case "clean" | "recovers":
            if not ended_well(history):
                yield _Problem(f"the job should end well, but its exit code is {code}")
            elif not history.count(Kind.UPDATE, Kind.COLLECTIVE):
                yield _Problem("no update and no collective is on record: nothing was shown", is_open=True)
        case "stops" | "refuses":
            if ended_well(history):
                yield _Problem("the job should fail, but its exit code is 0")
    if expect.outcome == "refuses":
        yield from _missing_refusal(history)
    for broken in expect.broken:
        if problem := _not_found(broken, verdicts[broken.guarantee]):
            yield problem
    if expect.restarts is not None and history.restarts != expect.restarts:
        yield _Problem(f"{expect.restarts} restarts are expected, and there were {history.restarts}")
    if expect.outcome == "recovers" and not history.count(Kind.UPDATE):
        yield _Problem("no update is on record: nothing shows that the state was recovered", is_open=True)
    yield from _wrong_resume(history)


def _missing_refusal(history: History) -> Iterator[_Problem]:
    message = history.plan.expect.message
    raised = history.of(Kind.EXCEPTION)
    if message is not None:
        if not any(message.lower() in f"{e.data['type']}: {e.data['message']}".lower() for e in raised):
            yield _Problem(f"the refusal should say {message!r}; what was said: {_said(history)}")
    elif not any(str(e.data["type"]).rpartition(".")[2] in REFUSALS for e in raised):
        yield _Problem(f"no refusal is on record ({', '.join(sorted(REFUSALS))}); what was said: {_said(history)}")


def _said(history: History) -> str:
    lines = {f"{e.data['type']}: {e.data['message']}"[:200]: None for e in history.of(Kind.EXCEPTION)}
    return "; ".join(lines) or "no exception is on record"


def _not_found(broken: Broken, verdict: Verdict) -> _Problem | None:
    what = _describe(broken)
    wanted_verdict = "unknown" if broken.guarantee == "FaultFired" else broken.verdict  # which is never invalid
    should = "should be unknown" if broken.verdict == "unknown" else "should be found broken"
    if verdict.outcome != wanted_verdict:
        is_open = verdict.outcome == "unknown"
        seen = "; it is unknown" if is_open else f", but the verdict is {verdict.outcome}"
        return _Problem(f"{what} {should}{seen}: {verdict.reason}", is_open=is_open)
    for name in ("rank", "step"):
        wanted, seen = getattr(broken, name), getattr(verdict, name)
        if wanted is not None and wanted != seen:
            return _Problem(f"{what} {should}; it was found at {name} {seen}: {verdict.reason}")
    operation = verdict.operation or ""
    if broken.operation is not None and canonical(broken.operation) not in canonical(operation):
        return _Problem(f"{what} {should}; it was found at operation {operation or 'none'}")
    return None


def _describe(broken: Broken) -> str:
    places = [f"{name} {at}" for name in ("rank", "step", "operation") if (at := getattr(broken, name)) is not None]
    return broken.guarantee + (f" ({', '.join(places)})" if places else "")


def _resumed_step(history: History) -> int | None:
    """The step that the last restart went on from, where the records tell."""
    for rank in history.ranks:
        if (started := start_step(history, rank, history.restarts)) is not None:
            return started[0]
    return None


def _wrong_resume(history: History) -> Iterator[_Problem]:
    wanted = history.plan.expect.resume_step
    if wanted is None:
        return
    if history.restarts == 0 and history.plan.start_from is None and load_of(history, 0, 0) is None:
        yield _Problem(f"a resume from step {wanted} is expected, and there was no restart")
        return
    steps = {}
    for rank in history.ranks:
        started = start_step(history, rank, history.restarts)
        if started is None:
            yield _Problem(f"a resume from step {wanted} is expected; nothing tells where rank {rank} went on", True)
            return
        steps[f"rank {rank}"] = started[0]
    if set(steps.values()) != {wanted}:
        yield _Problem(f"a resume from step {wanted} is expected, but {each(steps, 'went on from step {}')}")
