"""All sweeps of a user's file: each trouble at every call that it can befall, counted."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from harness.crashstates.ranks.session import LOAD_S, Host
from harness.crashstates.testbed import SAVE_DEADLINE_S, Testbed
from harness.crashstates.trouble import TROUBLES, Trouble
from harness.crashstates.trouble.base import MOST_TRIALS, Attempt
from harness.crashstates.verdict import SAFE, Verdict
from harness.errors import UnavailableError


@dataclass(kw_only=True)
class Failure:
    """One way to fail under one trouble.

    Attributes:
        verdict: of the load after the save, or of the second try.
        is_again: it is that of saving the same step again after a failed save.
        example: the first.
        num_attempts: how many failed so.
    """

    trouble: Trouble
    verdict: Verdict
    is_again: bool
    example: Attempt
    num_attempts: int = 0


@dataclass(kw_only=True)
class Sweep:
    """One trouble, tried everywhere.

    Attributes:
        verdicts: of all attempts; ``not-triggered``: it did not come up.
        failures: by verdict, and whether it was the second try's.
        unavailable: why it was not tried; None: it was.
        is_cut: there was more to try than the bound lets.
    """

    trouble: Trouble
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    failures: dict[tuple[Verdict, bool], Failure] = field(default_factory=dict)
    unavailable: str | None = None
    is_cut: bool = False
    seconds: float = 0.0

    @property
    def num_tries(self) -> int:
        return self.verdicts.total()

    @property
    def num_fired(self) -> int:
        return self.num_tries - self.verdicts["not-triggered"]

    def add(self, attempt: Attempt) -> None:
        self.verdicts[attempt.verdict] += 1
        if attempt.has_fired and attempt.verdict not in SAFE | self.trouble.excused:
            self._fail(attempt.verdict, attempt, is_again=False)
        if attempt.again is not None and attempt.again[0] not in SAFE:
            self._fail(attempt.again[0], attempt, is_again=True)

    def _fail(self, verdict: Verdict, attempt: Attempt, *, is_again: bool) -> None:
        first = Failure(trouble=self.trouble, verdict=verdict, is_again=is_again, example=attempt)
        self.failures.setdefault((verdict, is_again), first).num_attempts += 1


@dataclass(kw_only=True)
class Swept:
    """What came of all sweeps.

    Attributes:
        problems: why they say nothing, or not all.
        calibration: verdicts of undisturbed saves that do not load; nothing was tried then.
    """

    sweeps: list[Sweep] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    calibration: list[tuple[Verdict, str]] = field(default_factory=list)


def sweep(
    file: Path,
    root: Path,
    names: Sequence[str] = tuple(TROUBLES),
    *,
    host: Host | None = None,
    load_deadline_s: float = LOAD_S,
    save_deadline_s: float = SAVE_DEADLINE_S,
    on_attempt: Callable[[Trouble, Attempt], None] | None = None,
) -> Swept:
    """Try these troubles on the file's save, each wherever it can come up.

    Args:
        root: where to save and to load; an empty directory.
        names: keys of ``TROUBLES``.
        host: a process that has imported what the file needs; None: one of its own.
        load_deadline_s, save_deadline_s: what takes longer hangs.
        on_attempt: told of each.

    Raises:
        SaverError: the file cannot be used, or its save fails undisturbed.
        UnavailableError: strace is not there or may not trace.
    """
    found = Swept()
    with Testbed(file, root, host=host, save_deadline_s=save_deadline_s, load_deadline_s=load_deadline_s) as bed:
        found.calibration += bed.calibration.wrong
        if bed.calibration.is_usable and not bed.calibration.wrong:
            for name in names:
                found.sweeps.append(_swept(TROUBLES[name], bed, on_attempt))
        found.problems += bed.problems
    for each in found.sweeps:
        if each.num_tries and not each.num_fired:
            found.problems.append(
                f"{each.trouble.name} came up in none of {each.num_tries} tries: nothing is known of it"
            )
    return found


def _swept(trouble: Trouble, bed: Testbed, on_attempt: Callable[[Trouble, Attempt], None] | None) -> Sweep:
    found = Sweep(trouble=trouble)
    started_s = time.monotonic()
    try:
        for attempt in islice(trouble.attempts(bed), MOST_TRIALS):
            found.add(attempt)
            if on_attempt is not None:
                on_attempt(trouble, attempt)
    except UnavailableError as error:
        found.unavailable = str(error)
    found.is_cut = found.num_tries == MOST_TRIALS
    found.seconds = time.monotonic() - started_s
    return found
