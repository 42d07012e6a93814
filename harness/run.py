"""One run, from plan to judgement: launch, load, check, write down; and the same again from files alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from harness.baseline import BaselineCache, load_baseline, write_baseline
from harness.effects import read_effects, write_effects
from harness.errors import RecordError
from harness.expect import Judgement, judge, needs_baseline
from harness.history import Baseline, load_history
from harness.launch import LAUNCHERS, Launcher
from harness.leases import VISIBLE_ENV, gpu_pool
from harness.plan import Plan, write_plan
from harness.probes import torch_facts
from harness.remains import look, unseen_roots
from harness.report.stored import write_verdicts
from harness.start_from import load_start
from harness.wire import CHECKPOINTS, Kind

LEASE_TIMEOUT_S = 600.0


@dataclass(frozen=True, kw_only=True)
class Result:
    """A judged run.

    Attributes:
        duration_s: of the run alone, from starting the agent to its end; the baseline is not counted.
    """

    judgement: Judgement
    run_dir: Path
    duration_s: float


class Session:
    """Runs plans one after another; a context manager that keeps launchers between them and ends them all.

    Args:
        store_dir: where baselines and what was probed are kept; may be shared with other processes.
        runs_dir: where each run gets a directory.
        fresh_baselines: make every baseline anew.
        launchers: how the launcher of each name is made.
    """

    def __init__(
        self,
        store_dir: Path,
        runs_dir: Path,
        *,
        fresh_baselines: bool = False,
        launchers: Mapping[str, Callable[[], Launcher]] = LAUNCHERS,
    ) -> None:
        self._store_dir = store_dir
        self._runs_dir = runs_dir
        self._baselines = BaselineCache(store_dir / "baselines")
        self._fresh = fresh_baselines
        self._open = ExitStack()
        self._make = launchers
        self._launchers: dict[str, Launcher] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()
        self._launchers.clear()

    def run(self, plan: Plan) -> Result:
        """Run the plan and judge it.

        Raises:
            UnavailableError: this machine lacks GPUs that the plan needs.
            LaunchError: the ranks could not be started or ended.
            RecordError: the run directory cannot be written or read, or what the job begins with cannot be read.
        """
        start = None if plan.start_from is None else load_start(Path(plan.start_from), self._runs_dir)
        if start is not None and plan.acknowledged is None:
            plan = replace(plan, acknowledged=start.acknowledged)
        run_dir = self._new_run_dir(plan)
        try:
            with self._devices(plan) as env:
                run_dir.mkdir(parents=True)
                write_plan(plan, run_dir)
                baseline = None
                if needs_baseline(plan):
                    baseline = self._baselines.get(
                        plan, lambda twin, at: self._launch(twin, at, env), fresh=self._fresh
                    )
                    write_baseline(baseline, run_dir)  # before the launch: by it ranks tell at which step they begin
                if start is not None:
                    start.put(run_dir / CHECKPOINTS)
                self._launch(plan, run_dir, env)
            history = load_history(run_dir)
            if unseen := unseen_roots(history.of((Kind.SAVE_END, Kind.INVENTORY))):
                history = replace(history, remains=look(unseen, run_dir))
            judgement = judge(history, baseline)
            write_verdicts(judgement, run_dir)
        except OSError as error:
            raise RecordError(
                f"{run_dir}: the run cannot be kept there ({error.strerror}: {error.filename}); free space, make it "
                "writable, or choose another place with --chaos-store DIR"
            ) from error
        return Result(judgement=judgement, run_dir=run_dir, duration_s=history.outcome.duration_s)

    def baseline(self, plan: Plan) -> Baseline:
        """The fault-free twin of the plan, made now if it is not kept.

        Raises: as ``run``.
        """
        with self._devices(plan) as env:
            return self._baselines.get(plan, lambda twin, at: self._launch(twin, at, env), fresh=self._fresh)

    def _new_run_dir(self, plan: Plan) -> Path:
        names = itertools.chain([plan.name], (f"{plan.name}-{number}" for number in itertools.count(2)))
        return next(run_dir for name in names if not (run_dir := self._runs_dir / name).exists())

    @contextmanager
    def _devices(self, plan: Plan) -> Iterator[dict[str, str]]:
        """The environment that shows the ranks their GPUs, or hides all of them from a plan for CPUs."""
        if plan.device == "cpu":
            yield {VISIBLE_ENV: ""}
            return
        pool = gpu_pool(len(torch_facts(self._store_dir).gpus))
        with pool.lease(plan.ranks, LEASE_TIMEOUT_S) as lease:
            yield lease.env

    def _launch(self, plan: Plan, run_dir: Path, env: dict[str, str]) -> None:
        if plan.launcher not in self._launchers:
            self._launchers[plan.launcher] = self._open.enter_context(self._make[plan.launcher]())
        self._launchers[plan.launcher].launch(plan, run_dir, env)
        if plan.effects:
            write_effects(read_effects(plan.effects, run_dir), run_dir)


def recheck(run_dir: Path) -> Judgement:
    """Judge a stored run again, from its files alone.

    Raises:
        RecordError: the run directory is missing or damaged.
    """
    return judge(load_history(run_dir), load_baseline(run_dir))
