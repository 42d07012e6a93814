"""The truth of a user's file, learnt from undisturbed saves, and what a load is worth against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from harness.crashstates.ranks.outcome import Hung, Loaded, Outcome, Raised
from harness.crashstates.verdict import SAFE, Truth, Verdict, judge


@dataclass(frozen=True)
class Calibration:
    """What undisturbed saves tell.

    Attributes:
        wrong: verdicts of undisturbed saves that do not load, or not as ``expected(step)`` says.
        problems: why nothing can be said of a disturbed one; empty: something can.
        is_usable: there is a truth for every step.
    """

    truth: Truth
    wrong: tuple[tuple[Verdict, str], ...]
    problems: tuple[str, ...]
    is_usable: bool


def calibrate(loaded: Mapping[int, Outcome], expected: Callable[[int], Outcome] | None) -> Calibration:
    """Learn what load returns after undisturbed saves.

    Args:
        loaded: step -> what load made of it; step 0: of the empty directory.
        expected: the file's; None: it has none, and what was loaded is right.
    """
    for outcome in loaded.values():
        if isinstance(outcome.cause, Raised) and outcome.cause.error.endswith(".Incomparable"):
            return _unusable(f"what load returns cannot be compared: {outcome.cause.message}")
    if _digests(loaded[0]) is None:
        return _unusable(f"load of an empty directory {loaded[0]}; return None from it")
    right = dict(loaded)
    if expected is not None:
        right |= {step: expected(step) for step in loaded if step}
        if failed := [step for step in right if _digests(right[step]) is None]:
            return _unusable(*(f"expected({step}) {right[step]}" for step in failed))
    truth = Truth({step: by_rank for step, outcome in right.items() if (by_rank := _digests(outcome)) is not None})
    verdicts = {step: verdict_of(loaded[step], truth, step, step) for step in loaded if step}
    problems = tuple(_alike(truth))
    return Calibration(
        truth=truth,
        wrong=tuple(
            (verdict, f"load after an undisturbed save of step {step} {reason}")
            for step, (verdict, reason) in verdicts.items()
            if verdict not in SAFE
        ),
        problems=problems,
        is_usable=len(truth.digests) == len(right) and not problems,
    )


def verdict_of(outcome: Outcome, truth: Truth, acked: int, begun: int) -> tuple[Verdict, str]:
    """What came of one load, as a verdict and a reason."""
    if (digests := _digests(outcome)) is None:
        return ("hang" if isinstance(outcome.cause, Hung) else "refused"), str(outcome)
    return judge([truth.steps_of(rank, digest) for rank, digest in enumerate(digests)], acked, begun)


def _unusable(*problems: str) -> Calibration:
    return Calibration(Truth({}), (), problems, is_usable=False)


def _digests(outcome: Outcome) -> tuple[str, ...] | None:
    """What each rank loaded; None if one of them did not return."""
    digests = tuple(rank.digest for rank in outcome.ranks if isinstance(rank, Loaded))
    return digests if len(digests) == len(outcome.ranks) else None


def _alike(truth: Truth) -> Iterator[str]:
    for step, by_rank in truth.digests.items():
        for other, others in truth.digests.items():
            if other < step and by_rank == others:
                when = f"saves of steps {other} and {step}" if other else f"the save of step {step} and before it"
                yield (
                    f"load returns the same after {when}: states cannot be told apart; "
                    "return what was loaded, and let it depend on the step"
                )
