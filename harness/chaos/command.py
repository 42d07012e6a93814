"""``python -m harness chaos``: its options, what it prints at its end, its report.json and its exit code."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from harness.chaos.job import JobSource, job_of
from harness.chaos.night import JOBS_A_CORE, Night, Order, run_night
from harness.errors import ScenarioError
from harness.faults import KINDS
from harness.kept_runs import REPORT_JSON, make_session_dir, session_name
from harness.plan import made_with
from harness.report.stored import write_report
from harness.scenario import load_scenario
from harness.scenario.model import MAX_SEED
from harness.scenario.workloads import no_workload, workload_names

EXIT_CODES = {"passed": 0, "failed": 1, "unknown": 2}
MAX_NUMBERS = 12  # of plans, where they are named
REGRESSION = Path("scenarios", "regression")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, metavar="N", help="of every random choice (default: today, as YYYYMMDD)")
    parser.add_argument("--runs", type=int, metavar="N", help="how many plans, of all shards together")
    parser.add_argument(
        "--minutes", type=float, metavar="M", help="how long; the last run that does not fit is not begun"
    )
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="the I-th of N parts of the plans")
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"where scenario files go (default: {REGRESSION})")
    parser.add_argument(
        "--store", type=Path, default=Path(".chaos"), metavar="DIR", help="where runs and baselines are"
    )
    parser.add_argument("--jobs", type=int, metavar="N", help=f"runs at a time (default: {JOBS_A_CORE} a core)")
    parser.add_argument("--workload", metavar="NAME", help="the only workload to draw, a planted one too")
    parser.add_argument(
        "--scenario",
        type=Path,
        metavar="FILE",
        help="draw faults for the job of this file, your own script's too",
    )


def run(options: argparse.Namespace) -> int:
    """Run a night; returns the exit code: 0 all is well, 1 something is broken, 2 it proves nothing.

    Raises:
        ScenarioError: an option has no possible value.
    """
    store_dir = options.store.absolute()
    name = session_name(datetime.now(UTC), os.getpid())
    order = make_order(
        seed=options.seed,
        num_runs=options.runs,
        minutes=options.minutes,
        shard=options.shard,
        store_dir=store_dir,
        runs_dir=store_dir / "runs" / name,
        out_dir=options.out,
        jobs=options.jobs,
        workload=options.workload,
        scenario=options.scenario,
    )
    make_session_dir(store_dir, name, {"arguments": sys.argv[1:]})
    print(header(order), flush=True)
    night = run_night(order, sys.stdout)
    path = write_night(night)
    print("\n".join([*summary(night), *where_to_look(path)]))
    return EXIT_CODES[night.outcome]


def make_order(
    *,
    seed: int | None,
    num_runs: int | None,
    minutes: float | None,
    shard: str,
    store_dir: Path,
    runs_dir: Path,
    out_dir: Path | None,
    jobs: int | None = None,
    workload: str | None = None,
    scenario: Path | None = None,
) -> Order:
    """The order that options ask for.

    Raises:
        ScenarioError: one of them has no possible value; names all of those.
    """
    problems = []
    seed = int(f"{datetime.now(UTC):%Y%m%d}") if seed is None else seed
    if not 0 <= seed <= MAX_SEED:
        problems.append(f"seed {seed}: must be 0..{MAX_SEED}")
    if num_runs is None and minutes is None:
        problems.append("chaos needs a budget: give a number of runs, or of minutes")
    if num_runs is not None and num_runs < 1:
        problems.append(f"{num_runs} runs: must be at least 1")
    if minutes is not None and not 0 < minutes < float("inf"):
        problems.append(f"{minutes:g} minutes: must be above 0, and finite")
    if jobs is not None and jobs < 1:
        problems.append(f"{jobs} jobs: must be at least 1")
    if workload is not None and workload not in workload_names():
        problems.append(f"workload {workload!r}: {no_workload(workload)}")
    if workload is not None and scenario is not None:
        problems.append("a workload and a scenario file: each says what is trained; leave one out")
    part, num_shards = _shard(shard, problems)
    only = None
    try:
        only = None if scenario is None else job_of(load_scenario(scenario))
    except ScenarioError as error:
        problems += error.problems
    if problems:
        raise ScenarioError(problems)
    found_dir = REGRESSION if REGRESSION.is_dir() else store_dir / "found"
    return Order(
        seed=seed,
        num_runs=None if num_runs is None else len(range(part - 1, num_runs, num_shards)),
        duration_s=None if minutes is None else 60 * minutes,
        store_dir=store_dir,
        runs_dir=runs_dir,
        out_dir=(out_dir or found_dir).absolute(),
        shard=part,
        num_shards=num_shards,
        jobs=jobs or JOBS_A_CORE * (os.cpu_count() or 1),
        source=JobSource(only=only, workload=workload),
    )


def _shard(text: str, problems: list[str]) -> tuple[int, int]:
    part, slash, of = text.partition("/")
    if not (slash and part.isdecimal() and of.isdecimal() and 1 <= int(part) <= int(of)):
        problems.append(f"shard {text!r}: must be I/N, with I from 1 to N")
        return 1, 1
    return int(part), int(of)


def header(order: Order) -> str:
    """Seed, budget, shard and the command that does the same again."""
    budget = [f"{order.num_runs} runs"] if order.num_runs is not None else []
    budget += [f"{order.duration_s / 60:g} minutes"] if order.duration_s is not None else []
    made = made_with(Path(__file__).parent)
    commit = made["commit"][:12] + (" (dirty)" if made["dirty"] == "true" else "")
    shard = f"shard {order.shard}/{order.num_shards}, {order.jobs} at a time"
    return f"chaos: seed {order.seed}, {' or '.join(budget)}, {shard}, commit {commit}"


def summary(night: Night) -> Iterator[str]:
    """What a person reads next morning."""
    for found in sorted(night.found, key=lambda found: found.trial.number):
        if found.same_as is not None:
            yield f"plan {found.trial.number}: of the same cause as plan {found.same_as}: {found.trial.headline}"
            continue
        yield f"plan {found.trial.number}: {found.trial.headline}"
        yield from (f"  cause    {cause}" for cause in found.trial.causes)
        yield f"  run      {found.trial.run_dir}"
        if found.file is not None:
            state = "fails in the same way" if found.is_reproduced else "does NOT fail in the same way"
            yield f"  replay   pytest {found.file}"
            yield f"           it {state}; faults: {found.num_faults}, runs to make it smaller: {found.num_runs}"
        if found.others:
            yield f"  also     found {_times(len(found.others))}: plan{_numbers(found.others)}"
        if found.problem:
            yield f"  problem  {found.problem}"
    yield from _coverage(night)
    yield from (f"doubt: {doubt}" for doubt in night.doubts)
    yield f"the night is {night.outcome}"


def where_to_look(report: Path) -> Iterator[str]:
    """What makes pages of a night's report, and its path."""
    yield f"pages: python -m harness report {shlex.quote(str(report.parent))}"
    yield f"report: {report}"


def _coverage(night: Night) -> Iterator[str]:
    """Each fault kind with how many of it were drawn; of those that did not all fire how many did."""
    drawn = Counter(f.kind for trial in night.trials if trial.scenario is not None for f in trial.scenario.faults)
    fired = Counter(kind for trial in night.trials for kind in trial.fired)
    if not drawn:
        return
    told = [
        f"{kind} {count}" if fired[kind] == count else f"{kind} {fired[kind]} of {count}"
        for kind, count in sorted(drawn.items(), key=lambda item: (-item[1], item[0]))
    ]
    text = (
        f"faults: {drawn.total()} drawn, {fired.total()} fired, {len(drawn)} of {len(KINDS)} kinds: {', '.join(told)}"
    )
    yield from textwrap.wrap(text, 118, subsequent_indent="        ", break_on_hyphens=False)
    if never := sorted(KINDS.keys() - drawn.keys()):
        yield from textwrap.wrap(f"        never drawn: {', '.join(never)}", 118, subsequent_indent="        ")


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _numbers(plans: Sequence[int]) -> str:
    shown = ", ".join(map(str, plans[:MAX_NUMBERS]))
    return f"{'s' * (len(plans) > 1)} {shown}{', ...' * (len(plans) > MAX_NUMBERS)}"


def write_night(night: Night) -> Path:
    """Write report.json of a night; returns its path."""
    made = made_with(Path(__file__).parent)
    about = {"commit": made["commit"], "dirty": made["dirty"], "chaos": [night.to_json()]}
    trials = sorted(night.trials, key=lambda trial: trial.number)  # which ends first is chance
    return write_report(night.order.runs_dir / REPORT_JSON, about, [trial.to_json() for trial in trials])
