"""Are the checks any good? Run every planted bug and every healthy control, and count.

A planted bug is a scenario in ``workloads/planted/`` that expects ``detected``: it is caught when the guarantee it
names is found broken at the rank and step it names. Any other scenario there is a healthy control: a broken guarantee
in it is a false alarm.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from harness.errors import HarnessError
from harness.plan import Plan, make_plan
from harness.run import Session
from harness.scenario import load_scenario
from harness.wire import GUARANTEE_NAMES

NUM_BUGS_EACH = 2  # a guarantee with fewer planted bugs is not shown to be checked


@dataclass(frozen=True, kw_only=True)
class Row:
    """One planted bug or control, tried.

    Attributes:
        guarantees: those that the scenario says are broken; empty for a control.
        passed: the bug was caught under its name, or the control raised no alarm.
        found: the judgement's headline.
    """

    name: str
    guarantees: tuple[str, ...]
    passed: bool
    found: str
    duration_s: float

    @property
    def is_control(self) -> bool:
        return not self.guarantees


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


def try_all(files: Sequence[Path], on_row: Callable[[Row], None]) -> list[Row]:
    """Run each file's scenario; ``on_row`` hears of each as it ends."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="chaos-mutants-") as store, Session(Path(store), Path(store)) as session:
        for path in files:
            plan = make_plan(load_scenario(path), device="cpu")
            row = _try(session, plan, path.stem)
            rows.append(row)
            on_row(row)
    return rows


def _try(session: Session, plan: Plan, name: str) -> Row:
    guarantees = tuple(broken.guarantee for broken in plan.expect.broken)
    try:
        result = session.run(plan)
    except HarnessError as error:
        return Row(name=name, guarantees=guarantees, passed=False, found=f"not run: {error}", duration_s=0.0)
    return Row(
        name=name,
        guarantees=guarantees,
        passed=result.judgement.outcome == "passed",
        found=result.judgement.headline,
        duration_s=result.duration_s,
    )


def line(row: Row) -> str:
    mark = {(False, True): "caught", (False, False): "MISSED", (True, True): "silent", (True, False): "FALSE ALARM"}
    what = ", ".join(row.guarantees) or "healthy"
    text = f"{mark[row.is_control, row.passed]:<11} {what:<22} {row.name:<36} {row.duration_s:5.1f} s"
    return text if row.passed else f"{text}\n            {row.found}"


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """The score, the false alarms, and the guarantees that too few bugs were planted for."""
    bugs = [row for row in rows if not row.is_control]
    controls = [row for row in rows if row.is_control]
    caught = sum(row.passed for row in bugs)
    yield f"planted bugs caught: {caught} of {len(bugs)} ({caught / max(len(bugs), 1):.0%})"
    yield f"false alarms: {sum(not row.passed for row in controls)} in {len(controls)} healthy controls"
    for name in thin(rows):
        yield f"too few bugs planted for {name}: at least {NUM_BUGS_EACH} are needed"


def thin(rows: Sequence[Row]) -> list[str]:
    """Guarantees with fewer than ``NUM_BUGS_EACH`` planted bugs."""
    planted = Counter(name for row in rows for name in row.guarantees)
    return [name for name in GUARANTEE_NAMES if planted[name] < NUM_BUGS_EACH]
