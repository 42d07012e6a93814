"""The words that controller and ranks share: events, phases, environment names, run-directory paths.

Standard library only. Controller code, rank code and the checkpoint store all import it.

An event is one JSON line. Every event has ``t`` (CLOCK_MONOTONIC, ns), ``kind``, ``step`` and ``phase``; which other
fields it has depends on its kind and is written down at ``Kind``. Rank and restart count are in the file's path.

Steps count optimizer updates from 1: step 12 is the 12th update, from reading its batch to ``optimizer.step()``.
Between two updates (saving, evaluating) the step is that of the last update done; before the first one it is 0.
"""

from __future__ import annotations

import signal
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
    "GradientRight",
    "MetricRight",
    "EffectsOnce",
    "RetentionSafe",
]
GUARANTEE_NAMES: tuple[GuaranteeName, ...] = get_args(GuaranteeName)  # each has its check in harness.checks

RUN_DIR_ENV = "CHAOS_RUN_DIR"  # the run directory: ranks find plan.json there and write their records
PLAN_JSON = "plan.json"
OUTCOME_JSON = "outcome.json"
BASELINE_JSON = "baseline.json"
EFFECTS_JSON = "effects.json"
REMAINS_JSON = "remains.json"
VERDICTS_JSON = "verdicts.json"
LAUNCHER_LOG = "launcher.log"
CHECKPOINTS = "checkpoints"
# Asks a rank for its stacks. No signal that schedulers and scripts use, as they do SIGUSR1 and SIGUSR2.
STACKS_SIGNAL = int(signal.SIGRTMAX) - 1
ALIVE = "alive"  # every process of a run holds a shared flock on it: free means that nothing is left


class Kind(StrEnum):
    """Event kinds; above each when it is written, and its fields beside ``t kind step phase``."""

    # the process begins: pid, local_rank, world_size, local_world_size, host, master_addr, master_port, device, script
    START = "start"
    # the script calls init_process_group, which waits for all ranks
    RENDEZVOUS_START = "rendezvous_start"
    # ... and came back from it without an error
    RENDEZVOUS_END = "rendezvous_end"
    # a process group was made: group (name), ranks, backend
    GROUP = "group"
    # ``phase`` was entered
    PHASE = "phase"
    # an iteration over a DataLoader begins: loader (its number), site ("file:line" where it was made), epoch, length
    # (batches; None: unknown), distributed (whether its sampler divides one data set among the ranks), data (the data
    # set's number), samples (how many a whole pass is about; None: unknown), padding (how many may come once too often)
    LOADER = "loader"
    # loader, epoch, index (from 0 in this iteration), ids (sample ids; None: unknown); aside (true) only if a thread
    # beside the training read it
    BATCH = "batch"
    # the iteration ended by itself: loader, epoch, batches (how many were handed out)
    LOADER_END = "loader_end"
    # at issue: group, call (from 1 in this group), op, reduce_op, numel, dtype, root, site ("file:line"); faulted
    # ("skipped": asked for and not sent, "extra": sent and not asked for) only where a fault acted; aside (true) only
    # if a Python thread beside the training sent it: where the training was meanwhile is chance; left_out (how many
    # updates gradient scalers have left out so far) only if any; implied (true) only if
    # no function of torch.distributed was called for it: DDP sends its buckets and buffers so; returned (as of
    # EXCEPTION) only if the script came back from more calls of this group than were sent before this one
    COLLECTIVE = "collective"
    # on rank 0, after an evaluation, if the scenario has a reference for it: value (float; None: see problem), problem
    METRIC = "metric"
    # after an update: params, optimizer, buffers (digests, hex), the same of each of GENERATORS (None: not there), lr
    # (list), ids, epoch, batches, sharded, scaler (None without; else of each GradScaler its scale and growth tracker)
    UPDATE = "update"
    # a GradScaler left the update out, for a gradient overflowed: ids, batches (as above)
    SKIPPED = "skipped"
    # before an update that [gradient] asks for: error (why it cannot be told), or device, names (of the parameters),
    # numel, applied (a sketch of all gradients: of each parameter a few numbers, see harness.rank.gradients), norm (of
    # them), parts: of each batch used samples (None: unknown), has_drawn (random numbers), heads {name: {count,
    # weight, sum (a sketch)}}
    GRADIENT = "gradient"
    # before this process's first update: params, optimizer, buffers; matched_step, claimed_step (None: unknown)
    STATE = "state"
    # path; pending (sample ids, only if an update is unfinished: those of its micro-batches so far)
    SAVE_START = "save_start"
    # the save is acknowledged: path, manifest (sha256)
    SAVE_END = "save_end"
    # path, error, ranks (on which it failed; empty: nobody's alone)
    SAVE_ERROR = "save_error"
    # the same of a load; path is the root
    LOAD_ERROR = "load_error"
    # judged by the harness, not the store: root, entries [{name, step, verdict, reason, manifest}], why
    INVENTORY = "inventory"
    # path (None: nothing there), loaded_step, manifest, candidates [{name, step, verdict, reason}]
    LOAD = "load"
    # a save by other code than the checkpoint store returned: by (torch.save, ...), path (None: unknown)
    FOREIGN_SAVE = "foreign_save"
    # a load by other code than the checkpoint store begins: by, path (None: unknown)
    FOREIGN_LOAD = "foreign_load"
    # a file in /dev/shm was opened from Python: name
    SHM = "shm"
    # index (in the plan), fault (its kind), effect (words)
    FAULT = "fault"
    # what a fault of data or logic did, as measured where it acted: index, fault, and its own fields (harness.faults)
    EFFECT = "effect"
    # what left the training script: type, message, site, in_collective (bool), returned (group -> {calls, last,
    # raised}: how many collectives and messages the script came back from without an error, what the last one was, and
    # how many raised one, or will never come back, for a signal handler ends the process within them)
    EXCEPTION = "exception"
    # the script ended by itself: code; params, optimizer, buffers, magnitudes (if it had a model); returned (as above);
    # threads, sources; torn_down (whether destroy_process_group came back); at_once (true, only if by os._exit: past
    # the interpreter's own end)
    EXIT = "exit"


GENERATORS = {"python_random": "random", "numpy_random": "numpy.random", "torch_random": "torch"}
"""What the record calls the state of each random generator, and the module that it belongs to."""
RANDOM = (*GENERATORS, "rng")
"""The same, and what an older rank side called the state of all of them."""


def expanded(text: str, run_dir: Path) -> str:
    """``text`` with ``{run_dir}`` and ``{checkpoints}`` replaced by the paths they stand for."""
    return text.replace("{run_dir}", str(run_dir)).replace("{checkpoints}", str(run_dir / CHECKPOINTS))


def rank_dir(run_dir: Path, rank: int) -> Path:
    return run_dir / f"rank-{rank}"


def events_path(run_dir: Path, rank: int, restart: int) -> Path:
    return rank_dir(run_dir, rank) / f"events-{restart}.jsonl"


def output_path(
    run_dir: Path, rank: int, restart: int, stream: Literal["stdout", "stderr", "stacks", "sigterm"]
) -> Path:
    return rank_dir(run_dir, rank) / f"{stream}-{restart}.txt"


def flight_path(run_dir: Path, rank: int, restart: int) -> Path:
    """Torch's own record of this process's collectives, if it left one."""
    return rank_dir(run_dir, rank) / f"flight-{restart}.json"


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
