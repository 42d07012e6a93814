"""The words that controller and ranks share: events, phases, environment names, run-directory paths.

Standard library only. Controller code, rank code and the checkpoint store all import it.

An event is one JSON line. Every event has ``t`` (CLOCK_MONOTONIC, ns), ``kind``, ``step`` and ``phase``; which other
fields it has depends on its kind and is written down at ``Kind``. Rank and restart count are in the file's path.

Steps count optimizer updates from 1: step 12 is the 12th update, from reading its batch to ``optimizer.step()``.
Between two updates (saving, evaluating) the step is that of the last update done; before the first one it is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, get_args

Phase = Literal["init", "load_batch", "forward", "backward", "optimizer_step", "save", "load", "eval", "teardown"]
PHASES: tuple[Phase, ...] = get_args(Phase)

GuaranteeName = Literal[
    "FaultFired",
    "SteadyBefore",
    "EndsInTime",
    "CulpritNamed",
    "NothingLeft",
    "CollectivesAgree",
    "ReplicasAgree",
    "LoadersAgree",
    "OnlyCompleteLoads",
    "NewestCompleteLoads",
    "AcknowledgedSurvives",
    "RollbackExact",
    "ReplayIdentical",
    "EndsLikeBaseline",
    "SamplesOnce",
    "RetentionSafe",
]
GUARANTEE_NAMES: tuple[GuaranteeName, ...] = get_args(GuaranteeName)  # each has its check in harness.checks

RUN_DIR_ENV = "CHAOS_RUN_DIR"  # the run directory: ranks find plan.json there and write their records
PLAN_JSON = "plan.json"
OUTCOME_JSON = "outcome.json"
VERDICTS_JSON = "verdicts.json"
LAUNCHER_LOG = "launcher.log"
CHECKPOINTS = "checkpoints"
ALIVE = "alive"  # every process of a run holds a shared flock on it: free means that nothing is left


class Kind(StrEnum):
    """Event kinds. The fields beside ``t kind step phase`` stand behind each."""

    START = "start"  # pid, local_rank, world_size, local_world_size, host, master_addr, master_port, device, script
    GROUP = "group"  # group, ranks, backend
    PHASE = "phase"  # nothing more: ``phase`` was entered
    LOADER = "loader"  # loader (number of the DataLoader), epoch, length (batches, None: unknown)
    BATCH = "batch"  # loader, epoch, index (from 0 in this epoch's iteration), ids (sample ids, None: unknown)
    LOADER_END = "loader_end"  # loader, epoch, batches (how many were handed out)
    COLLECTIVE = "collective"  # group, call (from 1 in this group), op, reduce_op, numel, dtype, root, site ("file:line")
    UPDATE = "update"  # params, optimizer, buffers, scaler, rng (digests, hex), lr (list), ids, epoch, batches
    STATE = "state"  # params, optimizer, buffers before this restart's first update; matched_step, claimed_step (or None)
    SAVE_START = "save_start"  # path
    SAVE_END = "save_end"  # path, manifest (sha256, None: unknown): the save is acknowledged
    SAVE_ERROR = "save_error"  # path, error
    INVENTORY = "inventory"  # root, entries [{name, step, verdict, reason, manifest}], why: judged by the harness, not the store
    LOAD = "load"  # path (None: nothing there), loaded_step, manifest, candidates [{name, step, verdict, reason}]
    FAULT = "fault"  # index (in the plan), fault (kind), effect (words)
    SIGNAL = "signal"  # signal (name): a signal that Python saw
    EXCEPTION = "exception"  # type, message, site, in_collective (bool): it left the training script
    EXIT = "exit"  # code, params, optimizer, buffers: the script ended by itself; no digests without a model; threads, sources


def rank_dir(run_dir: Path, rank: int) -> Path:
    return run_dir / f"rank-{rank}"


def events_path(run_dir: Path, rank: int, restart: int) -> Path:
    return rank_dir(run_dir, rank) / f"events-{restart}.jsonl"


def output_path(run_dir: Path, rank: int, restart: int, stream: Literal["stdout", "stderr", "stacks", "sigterm"]) -> Path:
    return rank_dir(run_dir, rank) / f"{stream}-{restart}.txt"


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a rank's record.

    Attributes:
        rank: global rank that wrote it.
        restart: restart count of the process that wrote it; 0 for the first launch.
        seq: line number in its file, from 1: the place to open.
        t_ns: CLOCK_MONOTONIC; comparable between the ranks of one host.
        step: see the module's docstring.
        data: the fields that belong to ``kind``.
    """

    rank: int
    restart: int
    seq: int
    t_ns: int
    kind: str
    step: int
    phase: str
    data: Mapping[str, Any]

    @property
    def where(self) -> str:
        """The file and line of this event, relative to the run directory."""
        return f"rank-{self.rank}/events-{self.restart}.jsonl:{self.seq}"
