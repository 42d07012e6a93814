"""What is trained under chaos, and the ground that its faults are drawn on.

A job is a scenario without faults. It is drawn from our workloads, or it is that of a scenario file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Any

from harness.errors import ScenarioError
from harness.faults.base import Need
from harness.history import Baseline
from harness.plan import Expect
from harness.scenario import Scenario
from harness.scenario.workloads import is_own_script, own_workload_names
from harness.wire import Phase

KEPT_CHECKPOINTS = 3  # of our workloads: with the fourth save the oldest one is deleted
COLLECTIVE_TIMEOUT_S = 5.0  # a run that hangs waits for it, and costs no processor; a busy machine needs as much
DEADLINE_S = 120.0  # three launches on a busy machine; only what hangs for good comes near it
NUM_RANKS = (2, 2, 2, 3, 4)
LENGTHS = ((8, 2), (12, 5))  # updates, updates between two saves; few, since each job has to be run without faults
TRAINING: tuple[Phase, ...] = ("load_batch", "forward", "backward", "optimizer_step")
_SLOW = frozenset({"ddp_digits"})  # it evaluates a whole data set between updates
_WITHOUT_FLOATS = frozenset({"lm_tokens"})  # its batches are tokens
_ACCUMULATES = frozenset({"lm_tokens"})  # the first backward of an update of its is reduced with the last


@dataclass(frozen=True, kw_only=True)
class JobSource:
    """Where the jobs of a night come from.

    Attributes:
        only: the one job there is; None: they are drawn.
        workload: the only one to draw; None: all of ours.
        num_ranks: the world sizes to draw from.
    """

    only: Scenario | None = None
    workload: str | None = None
    num_ranks: tuple[int, ...] = NUM_RANKS

    def draw(self, rng: Random) -> Scenario:
        """A job."""
        if self.only is not None:
            return self.only
        names = [name for name in workloads() for _ in range(1 if name in _SLOW else 4)]
        steps, save_every = rng.choice(LENGTHS)
        return make_job(
            workload=rng.choice([self.workload] if self.workload else names),
            ranks=rng.choice(self.num_ranks),
            steps=steps,
            save_every=save_every,
        )


def make_job(*, workload: str, ranks: int, steps: int, save_every: int) -> Scenario:
    """A training of one of our workloads, whose expectation is derived from the faults that it will be given."""
    return Scenario(
        workload=workload,
        ranks=ranks,
        steps=steps,
        save_every=save_every,
        collective_timeout_s=COLLECTIVE_TIMEOUT_S,
        deadline_s=DEADLINE_S,
        expect=Expect(outcome="guaranteed"),
    )


def job_of(scenario: Scenario) -> Scenario:
    """What a scenario trains: without its faults, restarts and expectation, and with absolute paths.

    Raises:
        ScenarioError: it begins with what a crash left; chaos makes its own crashes.
    """
    if scenario.start_from is not None:
        cure = "take the line out; chaos crashes the job itself"
        raise ScenarioError([f"{scenario.file}: start_from: a job under chaos begins with nothing; {cure}"])
    changes: dict[str, Any] = {"title": "", "max_restarts": 0, "fault": (), "guarantees": ()}
    changes |= {"expect": Expect(outcome="guaranteed"), "devices": ("cpu",), "launcher": "warm"}
    if is_own_script(scenario.workload):
        changes["workload"] = str(scenario.script)
    if scenario.gradient is not None:
        changes["gradient"] = replace(scenario.gradient, losses=str(scenario.losses_path))
    if scenario.metric is not None:
        changes["metric"] = replace(scenario.metric, reference=str(scenario.reference_path))
    return changed(scenario, **changes)


def changed(scenario: Scenario, **fields: Any) -> Scenario:
    """The scenario with these fields, by the names that they have in a file; what was left out stays so."""
    kept = {_in_file(name): getattr(scenario, name) for name in scenario.model_fields_set}
    return Scenario(**{**kept, **fields})


def _in_file(name: str) -> str:
    return Scenario.model_fields[name].alias or name


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What a job passes when nothing goes wrong: only there can a fault be met.

    Attributes:
        baseline: of the job.
    """

    job: Scenario
    baseline: Baseline

    @cached_property
    def steps(self) -> int:
        """How many updates the job makes, or says that it makes: fewer are a finding, not a reason to look away."""
        planned = self.job.planned_steps
        return max(self.baseline.updates.get(0, {}), default=0) if planned is None else planned

    def phases_at(self, step: int) -> list[Phase]:
        """The phases that every rank enters in an update; of one that is not on record the usual ones."""
        if step not in self.baseline.updates.get(0, {}):
            return list(TRAINING)
        return [phase for phase in (*TRAINING, *_EVALUATES) if step in self.baseline.phases.get(phase, ())]

    def has_phase(self, phase: Phase) -> bool:
        """Whether every rank enters it at all."""
        return phase == "init" or bool(self.baseline.phases.get(phase))

    @cached_property
    def saved(self) -> list[int]:
        """The updates after which every rank saves with the checkpoint store, ascending."""
        return sorted(set.intersection(*self._saves(self.baseline.saves)))

    @cached_property
    def maybe_saved(self) -> list[int]:
        """The updates after which any rank saves, with whatever code, ascending."""
        return sorted(set.union(*self._saves(self.baseline.saves), *self._saves(self.baseline.foreign_saves)))

    def _saves(self, of_ranks: Mapping[int, Sequence[int]]) -> list[set[int]]:
        return [set(of_ranks.get(rank, ())) for rank in range(self.job.ranks)]

    @property
    def kept_checkpoints(self) -> int | None:
        """How many checkpoints stay when one more is saved; None: not known."""
        return KEPT_CHECKPOINTS if self._is_ours else None

    @property
    def _is_ours(self) -> bool:
        """Whether more is known of the script than what is on record."""
        return self.job.workload in workloads()

    def calls(self, rank: int, step: int) -> list[Any]:
        """(operation, reduce operation, number of elements, dtype) of each collective of an update, in order."""
        return [call for calls in self._phases(rank, step).values() for call in calls]

    def num_collectives(self, rank: int, step: int) -> int:
        return len(self.calls(rank, step))

    def may_come(self, rank: int, step: int, number: int) -> list[int]:
        """Numbers, in ``calls``, of those that may be the ``number``-th of the update; both count from 1.

        It is known of each phase in which order it sends. Where phases take turns, for attempts that overflow or
        micro-batches, any that has not more before it in its own phase, nor too few in the others, may be it.
        """
        phases = [len(calls) for calls in self._phases(rank, step).values()]
        if not self.may_overflow(step) and not self.accumulates:
            return [number]
        found, before = [], 0
        for num_calls in phases:
            others = sum(phases) - num_calls
            found += [before + own for own in range(max(1, number - others), min(number, num_calls) + 1)]
            before += num_calls
        return found

    @property
    def accumulates(self) -> bool:
        """Whether what one backward leaves on a rank alone may have to be reduced over all yet."""
        return not self._is_ours or self.job.workload in _ACCUMULATES

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
        """The updates with which a pass over the data begins on rank 0; empty where nothing tells."""
        epochs = dict(sorted(self.baseline.epochs.items()))
        if None in epochs.values():
            return ()
        return tuple(step for step, epoch in epochs.items() if epochs.get(step - 1) != epoch)

    @cached_property
    def has(self) -> frozenset[Need]:
        """What the script has that some faults need."""
        scalers = {digests.get("scaler") for digests in self.baseline.updates.get(0, {}).values()}
        has_floats = self._is_ours and self.job.workload not in _WITHOUT_FLOATS
        found: set[Need] = {"float_batches"} if has_floats else set()
        found |= {"scaler"} if scalers - {None, "None"} else set()
        # Those that training changes: a digest there is always, of no buffers too.
        buffers = {digests.get("buffers") for digests in self.baseline.updates.get(0, {}).values()}
        found |= {"buffers"} if len(buffers) > 1 else set()
        return frozenset(found)


GroundOf = Callable[[Scenario], Ground]
_EVALUATES: tuple[Phase, ...] = ("eval",)


def workloads() -> list[str]:
    """Our workloads, without the planted ones."""
    return list(own_workload_names())
