"""A plan: a scenario with every choice made. ``plan.json`` plus this code replays the run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from harness.errors import RecordError
from harness.faults import Fault, load_fault
from harness.wire import PLAN_JSON

Device = Literal["cpu", "gpu"]
Expected = Literal["clean", "recovers", "stops", "detected", "refuses"]


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A guarantee that the scenario says must be found broken, and where; None matches any place."""

    guarantee: str
    rank: int | None = None
    step: int | None = None
    operation: str | None = None


@dataclass(frozen=True, kw_only=True)
class Expect:
    """What the scenario says of the run's end.

    Attributes:
        resume_step: the step of the checkpoint that the last restart must have loaded.
        restarts: how many restarts there must have been; None: any number within the budget.
        broken: for ``detected``: what must be found.
        message: for ``refuses``: words that the refusal must contain.
    """

    outcome: Expected
    resume_step: int | None = None
    restarts: int | None = None
    broken: tuple[Broken, ...] = ()
    message: str | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything one run needs to know.

    Attributes:
        name: unique among the scenarios of a session; also names the run directory.
        scenario_file: where it was written down; None for a plan that was made in code.
        script: absolute path of the training script.
        args: its command line; ``{run_dir}`` and ``{checkpoints}`` are replaced by the launcher.
        steps, save_every: of one uninterrupted run, for workloads that take them; None for a user's own script.
        collective_timeout_s < deadline_s: the bounds; the test's own timeout is above both.
        env: further environment of the ranks.
        preload: packages that the warm parent imports once.
        tolerance: None asks for byte-equal final states, a number for a relative difference at most so large.
        guarantees: names asked for by the scenario; empty means all that apply.
        disarmed: the faults are left out on purpose; the run must then end ``unknown``.
        made_with: commit, dirty flag, versions of Python, torch and this package.
    """

    name: str
    script: str
    ranks: int
    expect: Expect
    title: str = ""
    scenario_file: str | None = None
    workload: str = ""
    args: tuple[str, ...] = ()
    device: Device = "cpu"
    launcher: str = "warm"
    seed: int = 0
    steps: int | None = None
    save_every: int | None = None
    max_restarts: int = 0
    collective_timeout_s: float = 5.0
    deadline_s: float = 60.0
    env: dict[str, str] = field(default_factory=dict)
    preload: tuple[str, ...] = ()
    tolerance: float | None = None
    guarantees: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    disarmed: bool = False
    made_with: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def write_plan(plan: Plan, run_dir: Path) -> None:
    (run_dir / PLAN_JSON).write_text(json.dumps(plan.to_json(), indent=1) + "\n")


def load_plan(run_dir: Path) -> Plan:
    """Read plan.json.

    Raises:
        RecordError: it is missing or damaged.
    """
    path = run_dir / PLAN_JSON
    try:
        raw: dict[str, Any] = json.loads(path.read_text())
        expect = raw.pop("expect")
        expect["broken"] = tuple(Broken(**b) for b in expect["broken"])
        for name in ("args", "preload", "guarantees"):
            raw[name] = tuple(raw[name])
        raw["faults"] = tuple(load_fault(f) for f in raw["faults"])
        return Plan(expect=Expect(**expect), **raw)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RecordError(f"{path}: no readable plan ({error}); is this a run directory?") from error
