"""A plan: a scenario with every choice made. ``plan.json`` plus this code replays the run."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import re
import subprocess
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

from harness.errors import RecordError
from harness.faults import Fault, load_fault
from harness.scenario import Broken, Device, Effect, Expect, Expected, Gradient, Metric, Scenario
from harness.scenario.workloads import is_own_script
from harness.wire import GUARANTEE_NAMES, PLAN_JSON

__all__ = ["Broken", "Device", "Effect", "Expect", "Expected", "Metric", "Plan", "load_plan", "make_plan", "write_plan"]

PACKAGE = "torch-recovery-harness"
GIT_TIMEOUT_S = 10.0
MAX_NAME_CHARS = 150  # of a directory's 255, with room for what its owner adds


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
        start_from: absolute path of the directory, or archive of a crash state, that the job begins with; or None.
        acknowledged: the newest step whose save had been reported done there; None: nobody knows, or nothing is there.
        preload: packages that the warm parent imports once.
        gradient: which updates' gradients are compared with float64 ones, ``losses`` being an absolute path; or None.
        tolerance: None asks for byte-equal final states, a number for a relative difference at most so large.
        guarantees: names asked for by the scenario; empty means all that apply.
        effects: where the job leaves side effects.
        metric: what is printed of evaluations, and the absolute path of what is true of them; or None.
        disarmed: the faults are left out on purpose; the run must then end ``unknown``.
        num_planned_faults: how many faults the scenario has, those left out on purpose included.
        made_with: the script's commit and whether files differ from it, versions of Python, torch and this package.
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
    start_from: str | None = None
    acknowledged: int | None = None
    preload: tuple[str, ...] = ()
    gradient: Gradient | None = None
    tolerance: float | None = None
    guarantees: tuple[str, ...] = ()
    effects: tuple[Effect, ...] = ()
    metric: Metric | None = None
    faults: tuple[Fault, ...] = ()
    disarmed: bool = False
    num_planned_faults: int = 0
    made_with: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def make_plan(
    scenario: Scenario, *, device: Device, launcher: str | None = None, seed: int | None = None, disarm: bool = False
) -> Plan:
    """The scenario with every choice made.

    Args:
        device: one of the scenario's.
        launcher, seed: in place of the scenario's own.
        disarm: leave the faults out.
    """
    seed = scenario.seed if seed is None else seed
    name = _name(scenario.file, device)
    return Plan(
        name=name,
        title=scenario.title or name,
        scenario_file=None if scenario.file is None else str(scenario.file),
        workload=scenario.workload,
        script=str(scenario.script),
        args=_args(scenario, seed),
        ranks=scenario.ranks,
        device=device,
        launcher=launcher or scenario.launcher,
        seed=seed,
        steps=scenario.planned_steps,
        save_every=scenario.planned_save_every,
        max_restarts=scenario.max_restarts,
        collective_timeout_s=scenario.collective_timeout_s,
        deadline_s=scenario.deadline_s,
        env=dict(scenario.env),
        start_from=None if scenario.start_path is None else str(scenario.start_path),
        acknowledged=scenario.acknowledged,
        preload=scenario.preload,
        gradient=scenario.gradient and replace(scenario.gradient, losses=str(scenario.losses_path)),
        tolerance=scenario.tolerance,
        guarantees=scenario.guarantees,
        effects=scenario.effects,
        metric=scenario.metric and replace(scenario.metric, reference=str(scenario.reference_path)),
        faults=() if disarm else scenario.faults,
        num_planned_faults=len(scenario.faults),
        disarmed=disarm,
        expect=scenario.expect,
        made_with=made_with(scenario.script.parent),
    )


def _args(scenario: Scenario, seed: int) -> tuple[str, ...]:
    values = {"{steps}": scenario.steps, "{save_every}": scenario.save_every, "{seed}": seed}
    args: tuple[str, ...] = scenario.args
    if not is_own_script(scenario.workload):
        ours = ("--steps", "{steps}", "--save-every", "{save_every}", "--seed", "{seed}")
        args = (*ours, "--checkpoint-dir", "{checkpoints}", *args)
    # Not str.format: an argument of the user's may be JSON, braces and all.
    return tuple(re.sub(r"\{\w+\}", lambda m: str(values.get(m[0], m[0])), arg) for arg in args)


def _name(file: Path | None, device: Device) -> str:
    """``scenarios.smoke.kill-in-backward-cpu``: the path from the current folder, made fit to name a directory.

    Where two files could get the same name, a digest of the path is part of it.
    """
    if file is None:
        return f"made-in-code-{device}"
    is_below = file.is_relative_to(Path.cwd())
    path = (file.relative_to(Path.cwd()) if is_below else Path(file.parent.name, file.name)).with_suffix("").as_posix()
    slug = re.sub(r"[^A-Za-z0-9_-]+", ".", path).strip(".")[-MAX_NAME_CHARS:]
    if not is_below or slug.replace(".", "/") != path:
        slug += "-" + hashlib.sha256(str(file).encode()).hexdigest()[:8]
    return f"{slug}-{device}"


@cache
def made_with(script_dir: Path) -> dict[str, str]:
    """What it takes to replay a plan beside the plan itself: commit, dirty flag, versions; "unknown" where it is."""
    git = ["git", "-C", str(script_dir), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        answer = subprocess.run(git, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=True)
        described = answer.stdout.strip()
    except (OSError, subprocess.SubprocessError):  # no git, or no repository
        described = ""
    return {
        "commit": described.removesuffix("-dirty") or "unknown",
        "dirty": str(described.endswith("-dirty")).lower() if described else "unknown",
        "python": platform.python_version(),
        "torch": _version("torch"),
        "harness": _version(PACKAGE),
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


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
        if (gradient := raw.pop("gradient", None)) is not None:
            raw["gradient"] = Gradient(**{**gradient, "updates": gradient["updates"] and tuple(gradient["updates"])})
        raw["faults"] = tuple(load_fault(f) for f in raw["faults"])
        raw["effects"] = tuple(_effect(e) for e in raw.get("effects", ()))
        raw["metric"] = None if raw.get("metric") is None else _metric(raw["metric"])
        plan = Plan(expect=Expect(**expect), **raw)
        if problem := _problem(plan):
            raise ValueError(problem)
        return plan
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        runs = sorted(below.parent.name for below in run_dir.glob(f"*/{PLAN_JSON}"))
        cure = f"give one of the runs in it: {', '.join([*runs[:3], *['...'][: len(runs) - 3]])}" if runs else ""
        raise RecordError(f"{path}: no readable plan ({error}); {cure or 'is this a run directory?'}") from error


def _metric(raw: dict[str, Any]) -> Metric:
    metric = Metric(**raw)
    try:
        re.compile(metric.reported)
    except re.error as error:
        raise ValueError(f"metric.reported is no regular expression: {error}") from error
    if not isinstance(metric.reference, str):
        raise ValueError(f"metric.reference must be a string, not {metric.reference!r}")
    return metric


def _effect(raw: dict[str, Any]) -> Effect:
    effect = Effect(**raw | {name: tuple(raw[name]) for name in ("key", "ignore")})
    if not all(isinstance(name, str) for name in (effect.path, effect.step, *effect.key, *effect.ignore)):
        raise ValueError(f"the place of a side effect is told in strings, not {raw}")
    return effect


def _problem(plan: Plan) -> str | None:
    """What no judgement could be made with; the scenario's own loader has checked all else."""
    if plan.expect.outcome not in get_args(Expected):
        return f"unknown expect.outcome {plan.expect.outcome!r}; allowed: {', '.join(get_args(Expected))}"
    for name in (*plan.guarantees, *(b.guarantee for b in plan.expect.broken)):
        if name not in GUARANTEE_NAMES:
            return f"unknown guarantee {name!r}; allowed: {', '.join(GUARANTEE_NAMES)}"
    for field_name in ("ranks", "max_restarts", "num_planned_faults"):
        if type(value := getattr(plan, field_name)) is not int or value < (field_name == "ranks"):
            return f"{field_name} must be a whole number, not {value!r}"
    for field_name in ("collective_timeout_s", "deadline_s"):
        if type(value := getattr(plan, field_name)) not in (int, float):
            return f"{field_name} must be a number, not {value!r}"
    for field_name, kind in (("acknowledged", int), ("start_from", str)):
        if type(value := getattr(plan, field_name)) not in (kind, type(None)):
            return f"{field_name} must be null or of type {kind.__name__}, not {value!r}"
    for field_name in ("name", "script", "title", "launcher", "device"):
        if not isinstance(value := getattr(plan, field_name), str):
            return f"{field_name} must be a string, not {value!r}"
    return None
