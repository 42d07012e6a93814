"""A night: plans are drawn, run side by side, judged, and what does not pass is made small and written down.

It is worth nothing without its canary: a planted bug that goes the same way as every plan, and must be found.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import Any, Literal, TextIO

from harness.chaos.budget import Budget, numbers
from harness.chaos.canary import Canary, draw_canary
from harness.chaos.draw import ANY_JOB
from harness.chaos.finding import SHRINK_S, Found, pin_down
from harness.chaos.job import JobSource
from harness.chaos.progress import Progress
from harness.chaos.same_cause import folded
from harness.chaos.trial import Trial, begin, try_number, try_scenario
from harness.launch.nursery import Nursery

REPEAT_EVERY = 20  # of so many plans one is run twice, and both must come to the same
MAX_FOUND = 8  # ways not to pass that are made smaller; more of them in a night have one cause, most likely
MAX_KEPT_EACH = 2  # run directories of one way not to pass
MAX_KEPT_BYTES = 256 << 20  # of all of them
TWICE_S = 1.0
JOBS_A_CORE = 3  # most of a run is waiting


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a night is to do.

    Attributes:
        num_runs: of this shard.
        shard, num_shards: which part of the plans, counted from 1, of how many.
        store_dir: where baselines are; nights that run at the same time may share it.
        runs_dir: where the run directories of what does not pass stay.
        out_dir: where scenario files of it are written.
        jobs: how many runs at a time.
        source: where the jobs come from.
        canary: None for the drawn one.
    """

    seed: int
    num_runs: int | None
    duration_s: float | None
    store_dir: Path
    runs_dir: Path
    out_dir: Path
    shard: int = 1
    num_shards: int = 1
    jobs: int = JOBS_A_CORE * (os.cpu_count() or 1)
    source: JobSource = ANY_JOB
    canary: Canary | None = None


@dataclass(kw_only=True)
class Night:
    """What it came to.

    Attributes:
        canary: its run; it must have failed, and by the bug that was planted.
        found: one entry for each way not to pass; of those of one cause all but one say which plan's file is kept.
        trouble: why the night broke off; empty if it did not.
    """

    order: Order
    trials: list[Trial] = field(default_factory=list)
    canary: Trial | None = None
    found: list[Found] = field(default_factory=list)
    is_interrupted: bool = False
    trouble: str = ""
    duration_s: float = 0.0

    @property
    def outcome(self) -> Literal["passed", "failed", "unknown"]:
        """failed: something is broken; unknown: it proves nothing, see ``doubts``."""
        if any(trial.outcome == "failed" for trial in self.trials):
            return "failed"
        return "unknown" if self.doubts else "passed"

    @property
    def doubts(self) -> list[str]:
        """Why the night cannot be believed; empty if it can."""
        doubts = []
        if self.canary is None:
            doubts.append("the canary was not run")
        elif self.canary.outcome != "failed":
            doubts.append(f"the canary was not found: {self.canary.outcome}, {self.canary.headline}")
        counts = Counter(trial.outcome for trial in self.trials)
        if not self.trials:
            doubts.append("no plan was run")
        doubts += [
            f"{counts[name]} of {len(self.trials)} runs: {name}" for name in ("unknown", "error") if counts[name]
        ]
        doubts += ["it was interrupted"] if self.is_interrupted else []
        doubts += [self.trouble] if self.trouble else []
        return doubts

    def coverage(self) -> list[dict[str, Any]]:
        """How often each (fault kind, phase, workload) was tried, by outcome of the run."""
        cells: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
        for trial in self.trials:
            for place in trial.places:
                cells[place][trial.outcome] += 1
        return [
            {"kind": kind, "phase": phase, "workload": workload, **counts}
            for (kind, phase, workload), counts in sorted(cells.items())
        ]

    def to_json(self) -> dict[str, Any]:
        """For report.json, beside the results."""
        order = self.order
        return {
            "seed": order.seed,
            "shard": f"{order.shard}/{order.num_shards}",
            "outcome": self.outcome,
            "doubts": self.doubts,
            "num_runs": len(self.trials),
            "duration_s": round(self.duration_s, 1),
            "runs_a_minute": round(60 * len(self.trials) / self.duration_s, 1) if self.duration_s else None,
            "counts": dict(Counter(trial.outcome for trial in self.trials)),
            "canary": None if self.canary is None else self.canary.to_json(),
            "found": [found.to_json() for found in self.found],
            "coverage": self.coverage(),
        }


def run_night(order: Order, out: TextIO, budget: Budget | None = None) -> Night:
    """Run it to its end, or to the first SIGINT or SIGTERM; returns what was found by then.

    Args:
        out: where progress is printed.
    """
    budget = budget or Budget(order.num_runs, order.duration_s)
    night = Night(order=order)
    prefix = "chaos" if order.num_shards == 1 else f"chaos {order.shard}/{order.num_shards}"
    progress = Progress(out, budget, prefix)
    order.runs_dir.mkdir(parents=True, exist_ok=True)
    earlier = {*order.out_dir.glob("*.toml")}
    context = get_context("spawn")  # a launcher's parent process must not share what this one has open
    is_ending = context.Event()
    store, runs = str(order.store_dir), str(order.runs_dir)
    with (
        _told_to_end(is_ending.set) as was_told,
        Nursery() as nursery,
        ProcessPoolExecutor(order.jobs, context, begin, (store, runs, is_ending, nursery.channel)) as pool,
    ):
        try:
            _Running(night, budget, progress, pool, was_told).to_the_end()
        except BrokenProcessPool as error:
            night.trouble = f"a worker process died: {error}"
    night.found = folded(night.found, night.trials)
    for found in night.found:
        if found.same_as is not None and found.file is not None and found.file not in earlier:
            found.file.unlink(missing_ok=True)
    night.is_interrupted = was_told()
    night.duration_s = budget.elapsed_s
    progress.say(progress.line())
    return night


class _Running:
    """The loop of a night: what runs now, and what becomes of what ended."""

    def __init__(
        self, night: Night, budget: Budget, progress: Progress, pool: ProcessPoolExecutor, was_told: Callable[[], bool]
    ) -> None:
        self._night, self._budget, self._progress, self._pool = night, budget, progress, pool
        self._was_told = was_told
        self._running: dict[Future[Any], tuple[str, Callable[[Any], None]]] = {}
        self._numbers = numbers(night.order.shard, night.order.num_shards)
        self._num_begun = 0
        self._ways: Counter[str] = Counter()
        self._kept_bytes = 0

    def to_the_end(self) -> None:
        order = self._night.order
        canary = order.canary or draw_canary(order.seed, order.shard)
        name = f"canary-{order.seed}-{order.shard}"
        self._begin("canary", partial(self._canary_ended, canary), try_scenario, canary.scenario, name)
        is_told = False
        while True:
            while not self._was_told() and len(self._running) < order.jobs and self._budget.fits(self._num_begun):
                number = next(self._numbers)
                self._num_begun += 1
                is_repeated = number % REPEAT_EVERY == REPEAT_EVERY // 2
                self._begin("plan", self._ended, try_number, order.seed, number, is_repeated, order.source)
            if not self._running:
                return
            done, _ = wait(self._running, timeout=0.5, return_when=FIRST_COMPLETED)
            for future in done:
                what, then = self._running.pop(future)
                self._progress.running[what] -= 1
                try:
                    ended = future.result()
                except BrokenProcessPool:
                    raise
                except Exception as error:  # a bug of ours takes one run, not what the night has found
                    self._night.trouble = f"a run broke off: {type(error).__name__}: {error}"
                    self._progress.say(f"{self._progress.prefix}: {self._night.trouble}")
                else:
                    then(ended)
            self._progress.tick()
            if self._was_told() and not is_told:
                is_told = True
                self._progress.say(f"{self._progress.prefix}: told to end; what runs is waited for, nothing is begun")

    def _begin(self, what: str, then: Callable[[Any], None], call: Callable[..., Any], *args: Any) -> None:
        self._running[self._pool.submit(call, *args)] = (what, then)
        self._progress.running[what] += 1

    def _canary_ended(self, canary: Canary, trial: Trial) -> None:
        if trial.outcome == "failed" and not canary.is_found_by(trial):
            why = f"it failed, and not by the bug that was planted: {trial.headline}"
            trial = replace(trial, outcome="unknown", headline=why)
        self._night.canary = trial
        word = "found, as it must be" if trial.outcome == "failed" else f"NOT FOUND, {trial.outcome}"
        self._progress.say(f"{self._progress.prefix}: canary {word} ({canary.scenario.workload}): {trial.headline}")

    def _ended(self, trial: Trial) -> None:
        self._budget.ended(trial.duration_s)
        self._ways[trial.way] += 1
        if trial.outcome != "passed":
            self._keep_or_delete(trial)
            is_new = self._ways[trial.way] == 1
            num_ways = sum(1 for way in self._ways if way)
            if is_new and num_ways <= MAX_FOUND and trial.scenario is not None and trial.outcome != "error":
                order, left_s = self._night.order, self._budget.left_s
                within_s = SHRINK_S if left_s is None else min(SHRINK_S, left_s)
                name = f"chaos-{order.seed}-{trial.number}"
                self._begin("smaller", self._pinned_down, pin_down, trial, order.out_dir, name, within_s)
            elif is_new:
                why = "no plan could be drawn" if trial.scenario is None else "too many ways not to pass"
                why = "the harness was in trouble, not the job" if trial.outcome == "error" else why
                self._night.found.append(Found(trial=trial, problem=f"not made smaller: {why}"))
        self._night.trials.append(trial)
        self._progress.ended(trial)

    def _pinned_down(self, found: Found) -> None:
        self._night.found.append(found)
        state = "reproduced by" if found.is_reproduced else "NOT reproduced by"
        what = f"{state} {found.file}" if found.file is not None else "no file"
        self._progress.say(f"{self._progress.prefix}: plan {found.trial.number}: {what} {found.problem}".rstrip())

    def _keep_or_delete(self, trial: Trial) -> None:
        """Run directories of what did not pass stay: the first of each way, further ones while there is room."""
        if trial.run_dir is None:
            return
        size_bytes = sum(path.lstat().st_size for path in trial.run_dir.rglob("*") if path.is_file())
        has_room = self._ways[trial.way] <= MAX_KEPT_EACH and self._kept_bytes + size_bytes <= MAX_KEPT_BYTES
        if self._ways[trial.way] == 1 or has_room:
            self._kept_bytes += size_bytes
        else:
            shutil.rmtree(trial.run_dir, ignore_errors=True)


@contextmanager
def _told_to_end(then: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Whether SIGINT or SIGTERM came: what runs is waited for, nothing more is begun.

    A later one is as ever; at once they come in twos: from a terminal, and from whoever passes it on.
    """
    came: list[float] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def note(number: int, _: FrameType | None) -> None:
        came.append(time.monotonic())
        then()
        if came[-1] - came[0] > TWICE_S:
            for each, handler in before.items():
                signal.signal(each, handler)
            os.kill(os.getpid(), number)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, note)
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
