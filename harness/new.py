"""``python -m harness new NAME``: a scenario to start from, with comments that say what else could stand there."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable
from pathlib import Path

from harness.errors import ScenarioError
from harness.faults import KINDS
from harness.scenario.schema import SCHEMA_NAME, schema_text
from harness.scenario.workloads import own_workload_names
from harness.wire import GUARANTEE_NAMES, PHASES

_TEXT = """\
#:schema {schema}
# Run it with: pytest {path}
title = "rank 1 is killed in backward of update 12; the job goes on from the checkpoint of update 10"

# A name in workloads/, or the path of any torchrun script, seen from this file's folder: workload = "../train.py"
{workloads}
workload = "ddp_mlp"
# args = ["--lr", "0.1"]     # the script's further arguments; {{checkpoints}} and {{run_dir}} are replaced by paths
ranks = 2                    # training processes
steps = 20                   # optimizer updates in all
save_every = 5               # updates between two checkpoints
max_restarts = 1             # how often the launcher may start all ranks again
devices = ["cpu"]            # one test each; "gpu" takes one GPU a rank
# collective_timeout_s = 5   # bound of one collective; must be below deadline_s
# deadline_s = 60            # bound of the whole run

# Left out, all guarantees that apply are judged:
{guarantees}
# guarantees = ["RollbackExact", "ReplayIdentical"]

# One such table for each fault; none of them where the outcome is "clean".
{kinds}
[[fault]]
kind = "kill"
rank = 1                     # or [0, 1], "all", "nonzero" or "last"
at = {{ step = 12, phase = "backward" }}
{phases}
# Other places, for the kinds that understand them:
# at = {{ step = 12, collective = 2 }}                         the second collective of update 12
# at = {{ step = 10, failpoint = "ckpt.shard.write:before" }}  inside the save after update 10
# at = {{ phase = "load", restart = 1 }}                       while the first restart recovers
# at = {{ epoch = 1 }}                                         for short_loader and batches: the second epoch

# clean: no fault is planned, an audit of the script. recovers: it ends well and every guarantee holds. stops: it ends
# in bounded time and the first cause is named. detected: the harness names what the stack is silent about, as in
# broken = [{{ guarantee = "CollectivesAgree", rank = 1, step = 12 }}]. refuses: with a clear error.
# guaranteed: the one of these that follows from what the faults mean.
[expect]
outcome = "recovers"
resume_step = 10             # the checkpoint that the restart must load
"""


def write_new(name: str) -> Path:
    """Write a scenario named ``name`` that runs as it is, and return its path.

    A bare name goes into ``scenarios/`` if there is such a folder here; anything else is a path from here. Where
    neither its folder nor one above has the schema for editors, that is put beside it.

    Raises:
        ScenarioError: the file is there already, or cannot be written.
    """
    path = Path(name if name.endswith(".toml") else f"{name}.toml")
    if path.parent == Path() and Path("scenarios").is_dir():
        path = "scenarios" / path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:  # never over what someone has written
            file.write(scenario_text(path, _schema_for(path)))
    except FileExistsError as error:
        raise ScenarioError([f"{error.filename}: is there already; choose another name, or delete it first"]) from error
    except OSError as error:
        raise ScenarioError([f"{path}: cannot be written: {error.strerror}"]) from error
    return path


def scenario_text(path: Path, schema: Path) -> str:
    """The text of a scenario that stands at ``path``; ``schema`` is where editors find the schema."""
    return _TEXT.format(
        path=path,
        schema=Path(os.path.relpath(schema.resolve(), path.parent.resolve())).as_posix(),
        workloads=_comment("Workloads", own_workload_names()),
        guarantees=_comment("Guarantees", GUARANTEE_NAMES),
        kinds=_comment("Kinds", KINDS),
        phases=_comment("Phases", PHASES),
    )


def _schema_for(path: Path) -> Path:
    """The nearest schema of the folders above; written beside ``path`` if there is none."""
    folders = path.resolve().parents
    for folder in folders:
        if (folder / SCHEMA_NAME).is_file():
            return folder / SCHEMA_NAME
    schema = folders[0] / SCHEMA_NAME
    schema.write_text(schema_text(), encoding="utf-8")
    return schema


def _comment(what: str, names: Iterable[str]) -> str:
    return textwrap.fill(f"{what}: {', '.join(names)}", 118, initial_indent="# ", subsequent_indent="#   ")
