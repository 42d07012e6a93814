"""What is printed while a night goes on: one line that stays on a terminal, plain lines everywhere else."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from textwrap import shorten
from typing import TextIO

from harness.chaos.budget import Budget
from harness.chaos.trial import Trial

EVERY_S = 15.0  # a plain line; one that stays in its place is renewed as often as it changes
MAX_LAST_CHARS = 100  # of the last failure, in each line that comes again; all of it is said once


@dataclass
class Progress:
    """Tells of each run that ended.

    Attributes:
        out: where to.
        prefix: of each line, such as the shard's number.
        running: how many of what go on just now: ``canary``, ``plan``, ``smaller`` (a plan being made smaller).
    """

    out: TextIO
    budget: Budget
    prefix: str = "chaos"
    counts: Counter[str] = field(default_factory=Counter)
    running: Counter[str] = field(default_factory=Counter)
    last_failure: str = ""
    _told_s: float = 0.0

    def ended(self, trial: Trial) -> None:
        """One more run has ended."""
        self.counts[trial.outcome] += 1
        if trial.outcome != "passed":
            self.last_failure = f"plan {trial.number}: {trial.headline}"
            self.say(f"{self.prefix}: {trial.outcome}, {self.last_failure}")
        self.tick()

    def tick(self) -> None:
        """Renew the line, or print one if it is time."""
        if self.out.isatty():
            self._write(f"\r\x1b[K{self.line()[:118]}")
        elif self.budget.elapsed_s - self._told_s >= EVERY_S:
            self._told_s = self.budget.elapsed_s
            self._write(f"{self.line()}\n")

    def say(self, text: str) -> None:
        """A line that stays."""
        self._write(f"\r\x1b[K{text}\n" if self.out.isatty() else f"{text}\n")

    def line(self) -> str:
        """Counts by outcome, what goes on, rate, time left, the last failure."""
        num_runs, elapsed_s = self.counts.total(), self.budget.elapsed_s
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.counts.items()))
        parts = [f"{num_runs} runs ({counts})"] if num_runs else [f"no plan has ended yet, after {elapsed_s:.0f} s"]
        parts += self._now()
        parts += [f"{60 * num_runs / elapsed_s:.0f} a minute"] if elapsed_s > 1 and num_runs else []
        parts += self._left(num_runs, elapsed_s)
        parts += [f"last: {shorten(self.last_failure, MAX_LAST_CHARS)}"] if self.last_failure else []
        return f"{self.prefix}: {'; '.join(parts)}"

    def _now(self) -> list[str]:
        """What a person may wonder about: why nothing ends yet, or why nothing is begun any more."""
        canary, plans, smaller = (self.running[what] for what in ("canary", "plan", "smaller"))
        doing = ["the canary"] if canary else []
        doing += (
            [f"{plans} plan{'s' * (plans > 1)}, each job first without faults"] if plans and not self.counts else []
        )
        doing += [f"{smaller} made smaller"] if smaller else []
        return [f"now: {', '.join(doing)}"] if doing else []

    def _left(self, num_runs: int, elapsed_s: float) -> list[str]:
        left_s = self.budget.left_s
        if self.budget.num_runs is not None and num_runs:
            by_runs_s = (self.budget.num_runs - num_runs) * elapsed_s / num_runs
            left_s = by_runs_s if left_s is None else min(left_s, by_runs_s)
        return [] if left_s is None else [f"{max(0.0, left_s):.0f} s left"]

    def _write(self, text: str) -> None:
        self.out.write(text)
        self.out.flush()
