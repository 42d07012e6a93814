"""The command that runs a plan again."""

from __future__ import annotations

import shlex
from pathlib import Path

from harness.plan import Plan


def replay_command(plan: Plan, scenario_file: Path | None = None) -> str:
    """What to type; empty for a plan that was made in code.

    Args:
        scenario_file: as the reader would type it; else the plan's, from the current directory where it lies below it.
    """
    if scenario_file is None:
        if plan.scenario_file is None:
            return ""
        scenario_file = Path(plan.scenario_file)
        if scenario_file.is_relative_to(Path.cwd()):
            scenario_file = scenario_file.relative_to(Path.cwd())
    command = ["pytest", f"{scenario_file}::{plan.device}", "--launcher", plan.launcher]
    command += ["--chaos-seed", str(plan.seed)]
    return shlex.join([*command, "--disarm"] if plan.disarmed else command)
