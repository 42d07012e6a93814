"""What is trained under chaos, and the ground that its faults are drawn on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

from harness.faults.base import Need
from harness.history import Baseline
from harness.plan import Expect, Plan, make_plan
from harness.scenario import Scenario
from harness.scenario.workloads import own_workload_names

KEPT_CHECKPOINTS = 3  # of our workloads: with the fourth save the oldest one is deleted
COLLECTIVE_TIMEOUT_S = 5.0  # a run that hangs waits for it, and costs no processor; a busy machine needs as much
DEADLINE_S = 120.0  # three launches on a busy machine; only what hangs for good comes near it
NUM_RANKS = (2, 2, 2, 3, 4)
LENGTHS = ((8, 2), (12, 5))  # updates, updates between two saves; few, since each job has to be run without faults
_SLOW = frozenset({"ddp_digits"})  # it evaluates a whole data set between updates
_WITHOUT_FLOATS = frozenset({"lm_tokens"})  # its batches are tokens
_ACCUMULATES = frozenset({"lm_tokens"})  # the first backward of an update of its is reduced with the last


@dataclass(frozen=True, kw_only=True, order=True)
class Job:
    """A training without faults.

    Attributes:
        steps, save_every: as in a scenario.
    """

    workload: str
    ranks: int
    steps: int
    save_every: int

    def scenario(self, **fields: Any) -> Scenario:
        """A scenario of this job whose expectation is derived from its faults."""
        return Scenario(
            workload=self.workload,
            ranks=self.ranks,
            steps=self.steps,
            save_every=self.save_every,
            collective_timeout_s=COLLECTIVE_TIMEOUT_S,
            deadline_s=DEADLINE_S,
            expect=Expect(outcome="guaranteed"),
            **fields,
        )

    def plan(self) -> Plan:
        return make_plan(self.scenario(), device="cpu")

    def saved(self) -> list[int]:
        """The updates after which there is a save, ascending."""
        return [step for step in range(1, self.steps + 1) if step % self.save_every == 0 or step == self.steps]


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What a job passes when nothing goes wrong: only there can a fault be met.

    Attributes:
        baseline: of the job.
    """

    job: Job
    baseline: Baseline

    def calls(self, rank: int, step: int) -> list[Any]:
        """(operation, reduce operation, number of elements, dtype) of each collective of an update, in order."""
        return [call for calls in self._phases(rank, step).values() for call in calls]

    def num_collectives(self, rank: int, step: int) -> int:
        return len(self.calls(rank, step))

    @property
    def accumulates(self) -> bool:
        """Whether what one backward leaves on a rank alone is still to be reduced over all."""
        return self.job.workload in _ACCUMULATES

    def may_overflow(self, step: int) -> bool:
        """Whether an attempt at this update may overflow without a fault: its scaler has just begun to count anew."""
        kept = json.loads(self.baseline.updates.get(0, {}).get(step, {}).get("scaler", "None").replace("None", "null"))
        return isinstance(kept, list) and any(count == 0 for _, count in kept)

    def phase_of_collective(self, rank: int, step: int, number: int) -> str:
        """The phase of the ``number``-th collective of a step, from 1; empty where nothing is on record."""
        for phase, calls in self._phases(rank, step).items():
            number -= len(calls)
            if number <= 0:
                return phase
        return ""

    def _phases(self, rank: int, step: int) -> Mapping[str, Sequence[Any]]:
        return self.baseline.collectives.get(rank, {}).get(step, {})

    @cached_property
    def epoch_starts(self) -> tuple[int, ...]:
        """The updates with which a pass over the data begins on rank 0; empty where samples have no ids."""
        starts: list[int] = []
        seen: set[int] = set()
        for step, ids in sorted(self.baseline.sample_ids.get(0, {}).items()):
            if ids is None:
                return ()
            if not starts or seen & set(ids):
                starts.append(step)
                seen = set()
            seen |= set(ids)
        return tuple(starts)

    @cached_property
    def has(self) -> frozenset[Need]:
        """What the script has that some faults need."""
        scalers = {digests.get("scaler") for digests in self.baseline.updates.get(0, {}).values()}
        found: set[Need] = set() if self.job.workload in _WITHOUT_FLOATS else {"float_batches"}
        found |= {"scaler"} if scalers - {None, "None"} else set()
        # Those that training changes: a digest there is always, of no buffers too.
        buffers = {digests.get("buffers") for digests in self.baseline.updates.get(0, {}).values()}
        found |= {"buffers"} if len(buffers) > 1 else set()
        return frozenset(found)


GroundOf = Callable[[Job], Ground]


def workloads() -> list[str]:
    """Our workloads, without the planted ones."""
    return list(own_workload_names())


def draw_job(rng: Random, only: str | None = None, num_ranks: Sequence[int] = NUM_RANKS) -> Job:
    """A job; ``only`` names its workload, ``num_ranks`` are the world sizes to choose from."""
    names = [only] if only else [name for name in workloads() for _ in range(1 if name in _SLOW else 4)]
    steps, save_every = rng.choice(LENGTHS)
    return Job(workload=rng.choice(names), ranks=rng.choice(num_ranks), steps=steps, save_every=save_every)
