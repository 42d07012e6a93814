"""Are the checks any good? Run every planted bug and every healthy control, and count.

A planted bug is a scenario in ``workloads/planted/`` that expects ``detected``: it is caught when the guarantee it
names is found broken at the rank and step it names, or left open there where it says so. Any other scenario there is a
healthy control: a broken guarantee in it is a false alarm.

A planted saver is a script in ``workloads/planted/savers/``: it is caught when its states have the verdicts that its
row of the table names, under no weaker a kind of crash; or, where no crash harms it, under the trouble that is named.
Those in ``workloads/savers/`` are healthy: no crash harms them.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.util import Finalize
from pathlib import Path

from harness.crashstates.command import work_directory
from harness.crashstates.examine import examine
from harness.crashstates.expect import weigh
from harness.crashstates.models import MODEL_NAMES
from harness.crashstates.ranks.session import Host
from harness.crashstates.sweep import sweep
from harness.crashstates.wording import report
from harness.errors import HarnessError
from harness.plan import make_plan
from harness.planted_savers import PlantedSaver, healthy_savers, planted_savers
from harness.run import Session
from harness.scenario import ExpectStates, load_scenario
from harness.wire import GUARANTEE_NAMES

LOAD_DEADLINE_S = 3.0  # of the savers: theirs are small
NUM_BUGS_EACH = 2  # a guarantee with fewer planted bugs is not shown to be checked


@dataclass(frozen=True, kw_only=True)
class Row:
    """One planted bug or control, tried.

    Attributes:
        expected: the guarantees that must be found broken, or the verdicts of a saver's states; empty for a control.
        passed: the bug was caught under its name, or the control raised no alarm.
        found: what was found, in a line.
        num_runs: how many it took.
    """

    name: str
    expected: tuple[str, ...]
    passed: bool
    found: str
    duration_s: float
    num_runs: int = 1

    @property
    def is_control(self) -> bool:
        return not self.expected


def planted_files() -> list[Path]:
    """The scenario files of all planted bugs and controls.

    Raises:
        HarnessError: the package ``workloads`` is not installed.
    """
    spec = find_spec("workloads")
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    files = sorted(path for place in places for path in Path(place, "planted").glob("*.toml"))
    if not files:
        raise HarnessError("no planted bugs found: run from a checkout of this project, or install its `workloads`")
    return files


def try_all(files: Sequence[Path], on_row: Callable[[Row], None], jobs: int | None = None) -> list[Row]:
    """Run each file's scenario; ``on_row`` hears of each, in the order of the files.

    Args:
        jobs: how many at a time; None: one for each core.
    """
    rows = []
    with (
        tempfile.TemporaryDirectory(prefix="chaos-mutants-") as store,
        # spawn: a launcher's parent process must not share what this one has open
        ProcessPoolExecutor(jobs or os.cpu_count(), get_context("spawn"), _begin, (store,)) as pool,
    ):
        for row in pool.map(_try, files):
            rows.append(row)
            on_row(row)
    return rows


_session: Session  # of this worker process


def _begin(store: str) -> None:
    global _session
    _session = Session(Path(store), Path(tempfile.mkdtemp(dir=store)))
    Finalize(None, _session.__exit__, (None, None, None), exitpriority=100)  # before what multiprocessing ends


def _try(file: Path) -> Row:
    plan, name = make_plan(load_scenario(file), device="cpu"), file.stem
    guarantees = tuple(broken.guarantee for broken in plan.expect.broken)
    try:
        result = _session.run(plan)
    except HarnessError as error:
        return Row(name=name, expected=guarantees, passed=False, found=f"not run: {error}", duration_s=0.0)
    return Row(
        name=name,
        expected=guarantees,
        passed=result.judgement.outcome == "passed",
        found=result.judgement.headline,
        duration_s=result.duration_s,
    )


def try_savers(on_row: Callable[[Row], None]) -> list[Row]:
    """Try every crash on each planted saver and each healthy one.

    Raises:
        UnavailableError: strace cannot trace here.
    """
    rows = []
    with Host(preload=("torch",)) as host:
        for saver in planted_savers():
            rows.append(_try_saver(host, saver.file, saver))
            on_row(rows[-1])
        for file in healthy_savers():
            rows.append(_try_saver(host, file, None))
            on_row(rows[-1])
    return rows


def _try_saver(host: Host, file: Path, planted: PlantedSaver | None) -> Row:
    started_s = time.monotonic()
    with work_directory() as root:
        found = examine(file, root, host=host, load_deadline_s=LOAD_DEADLINE_S)
    if planted is None:
        problems = weigh(found, ExpectStates(outcome="valid"))[1]
    else:
        problems = []
        if planted.trouble is not None:
            problems += [f"a crash harms it as well: {', '.join(sorted(found.failing))}"] if found.failing else []
            with work_directory() as root:
                found.take(sweep(file, root, [planted.trouble], host=host, load_deadline_s=LOAD_DEADLINE_S))
        problems += found.problems
        problems += [f"nothing is {verdict}" for verdict in planted.verdicts if verdict not in found.failing]
        weakest = min((finding.model for finding in found.findings), key=MODEL_NAMES.index, default=planted.model)
        problems += [f"it fails under {weakest}, not {planted.model}"] if weakest != planted.model else []
        problems += [f"the report does not say {planted.finding!r}"] if planted.finding not in report(found) else []
    return Row(
        name=file.stem,
        expected=() if planted is None else planted.verdicts,
        passed=not problems,
        found="; ".join(problems),
        duration_s=time.monotonic() - started_s,
    )


def line(row: Row) -> str:
    mark = {(False, True): "caught", (False, False): "MISSED", (True, True): "silent", (True, False): "FALSE ALARM"}
    what = ", ".join(row.expected) or "healthy"
    text = f"{mark[row.is_control, row.passed]:<11} {what:<22} {row.name:<36} {row.duration_s:5.1f} s"
    text += f"  {row.num_runs} runs" if row.num_runs > 1 else ""
    return text if row.passed else f"{text}\n            {row.found}"


def summary(rows: Sequence[Row], too_few: Sequence[str] = ()) -> Iterator[str]:
    """The score, the false alarms, and the guarantees that ``too_few`` bugs were planted for."""
    bugs = [row for row in rows if not row.is_control]
    controls = [row for row in rows if row.is_control]
    caught = sum(row.passed for row in bugs)
    yield f"planted bugs caught: {caught} of {len(bugs)} ({caught / max(len(bugs), 1):.0%})"
    yield f"false alarms: {sum(not row.passed for row in controls)} in {len(controls)} healthy controls"
    for name in too_few:
        yield f"too few bugs planted for {name}: at least {NUM_BUGS_EACH} are needed"


def thin(rows: Sequence[Row]) -> list[str]:
    """Guarantees with fewer than ``NUM_BUGS_EACH`` planted bugs."""
    planted = Counter(name for row in rows for name in row.expected)
    return [name for name in GUARANTEE_NAMES if planted[name] < NUM_BUGS_EACH]
