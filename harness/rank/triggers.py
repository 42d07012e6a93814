"""Which planned fault fires at which point of this process.

The other modules tell where the script is; this one matches that against the plan, records the firing and lets the
fault act. A process without faults pays one ``if`` on an empty list per point.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from harness.faults.base import At, CollectiveFault, Fault, LastingFault, LoaderFault, PointFault, WriteFault
from harness.faults.batch import BatchFault
from harness.faults.files import FilesFault
from harness.faults.work import WorkFault, WorkPlace
from harness.rank.recorder import Recorder
from harness.wire import CHECKPOINTS, Kind, Phase, rank_dir

MEETING_POLL_S = 0.001
_AT_INSTANTS = (PointFault, LastingFault, FilesFault)
F = TypeVar("F", bound=Fault)


@dataclass
class _Armed:
    """A fault to come.

    Attributes:
        acts: the (step, phase) at which one that lasts acts once more, after it has fired.
    """

    index: int
    fault: Fault
    matches: int = 0
    fired: bool = False
    acts: Collection[tuple[int, Phase]] = ()


@dataclass(frozen=True)
class Fired(Generic[F]):
    """A fault that is on record and may act now.

    Attributes:
        fault: what acts.
        index: its place in the plan.
        recorder: where its effect is told.
    """

    fault: F
    index: int
    recorder: Recorder

    def tell(self, **measured: Any) -> None:
        """Record what it did, as measured."""
        self.recorder.emit(Kind.EFFECT, index=self.index, fault=self.fault.kind, **measured)


class Triggers:
    """The faults of the plan that aim at this rank and this restart count; each fires once.

    Args:
        faults: all faults of the plan, in its order: the index is how the controller names them.
        meeting_s: how long the ranks that one fault ends wait for each other.
    """

    def __init__(
        self,
        faults: Sequence[Fault],
        recorder: Recorder,
        run_dir: Path,
        *,
        rank: int,
        world_size: int,
        restart: int,
        meeting_s: float,
    ) -> None:
        self._recorder = recorder
        self._run_dir = run_dir
        self._rank, self._world_size, self._restart = rank, world_size, restart
        self._meeting_s = meeting_s
        self._armed = [
            _Armed(index, fault)
            for index, fault in enumerate(faults)
            if rank in fault.targets(world_size) and fault.at.restart == restart
        ]

    @property
    def has_faults(self) -> bool:
        """Whether any is to fire in this process; else it need not be asked."""
        return bool(self._armed)

    def at_phase(self, step: int, phase: Phase) -> None:
        """A phase was entered."""
        for armed in self._armed:
            fault, at = armed.fault, armed.fault.at
            if not isinstance(fault, _AT_INSTANTS) or at.failpoint is not None or at.collective is not None:
                continue
            if self._hit(armed, at.hit, at.step in (None, step) and at.phase in (None, phase)):
                self._fire(armed, f"on entering {phase} of step {step}")
                self._act(armed)
            if isinstance(fault, LastingFault) and (step, phase) in armed.acts:
                Fired(fault, armed.index, self._recorder).tell(**fault.act())

    def at_failpoint(self, name: str) -> None:
        """A failpoint was reached, such as ``ckpt.manifest.rename:before``."""
        for armed in self._armed:
            at = armed.fault.at
            if isinstance(armed.fault, _AT_INSTANTS) and self._hit(
                armed, at.hit, at.failpoint == name and self._is_here(at)
            ):
                self._fire(armed, f"at {name}")
                self._act(armed)

    def _act(self, armed: _Armed) -> None:
        fault, recorder = armed.fault, self._recorder
        if isinstance(fault, PointFault):
            fault.fire()
        elif isinstance(fault, FilesFault):
            Fired(fault, armed.index, recorder).tell(**fault.damage(self._run_dir / CHECKPOINTS))
        elif isinstance(fault, LastingFault):
            armed.acts = {(recorder.step + n, recorder.phase) for n in range(fault.lasts())}

    def at_write(self, name: str, size_bytes: int) -> int | None:
        """How much of this write may reach the file before the process dies; None if it is left alone."""
        for armed in self._armed:
            at = armed.fault.at
            if isinstance(armed.fault, WriteFault) and self._hit(
                armed, at.hit, at.failpoint == name and self._is_here(at)
            ):
                part_bytes = armed.fault.part(size_bytes)
                effect = f"{part_bytes} of {size_bytes} bytes at {name}"
                self._fire(armed, effect, size_bytes=size_bytes, part_bytes=part_bytes)
                return part_bytes
        return None

    def waiting(self, family: type[F]) -> list[F]:
        """The faults of a family that have not fired."""
        return [a.fault for a in self._armed if isinstance(a.fault, family) and not a.fired]

    def at_collective(self) -> Fired[CollectiveFault] | None:
        """A collective is about to be sent: the fault that replaces it, if any; may not return."""
        for armed in self._armed:
            fault, at = armed.fault, armed.fault.at
            if not isinstance(fault, CollectiveFault) and at.collective is None:
                continue
            if self._hit(armed, at.collective or at.hit, self._is_here(at)):
                self._fire(armed, f"at collective {at.collective or at.hit} of {self._recorder.phase}")
                if isinstance(fault, CollectiveFault):
                    return Fired(fault, armed.index, self._recorder)
                if isinstance(fault, PointFault):
                    fault.fire()
        return None

    def at_loader(self, epoch: int, batches: int) -> int:
        """An epoch of ``batches`` batches begins: how many of them are handed out."""
        for armed in self._armed:
            at = armed.fault.at
            if isinstance(armed.fault, LoaderFault) and self._hit(armed, at.hit, at.epoch in (None, epoch)):
                shorter = armed.fault.length(batches)
                self._fire(armed, f"{shorter} of {batches} batches in epoch {epoch}", epoch=epoch, length=batches)
                batches = shorter
        return batches

    def at_batch(self, loader: int, epoch: int, index: int) -> Fired[BatchFault] | None:
        """A batch was read and is not handed out yet: the fault that acts on it, if any."""
        for armed in self._armed:
            fault, at = armed.fault, armed.fault.at
            if isinstance(fault, BatchFault) and self._hit(
                armed, at.hit, at.epoch in (None, epoch) and self._is_here(at)
            ):
                self._fire(armed, f"on batch {index} of epoch {epoch} of loader {loader}", epoch=epoch)
                return Fired(fault, armed.index, self._recorder)
        return None

    def at_work(self, place: WorkPlace) -> Fired[WorkFault] | None:
        """A piece of work is about to be done: the fault that acts in its place, if any."""
        for armed in self._armed:
            fault, at = armed.fault, armed.fault.at
            if isinstance(fault, WorkFault) and self._hit(armed, at.hit, fault.acts_in == place and self._is_here(at)):
                self._fire(armed, f"in place of {place} in step {self._recorder.step}")
                return Fired(fault, armed.index, self._recorder)
        return None

    def _is_here(self, at: At) -> bool:
        return at.step in (None, self._recorder.step) and at.phase in (None, self._recorder.phase)

    def _hit(self, armed: _Armed, hit: int, matches: bool) -> bool:
        if armed.fired or not matches:
            return False
        armed.matches += 1
        return armed.matches == hit

    def _fire(self, armed: _Armed, effect: str, **more: Any) -> None:
        # The record comes first: many faults leave no time for it afterwards.
        armed.fired = True
        self._recorder.emit(Kind.FAULT, index=armed.index, fault=armed.fault.kind, effect=effect, **more)
        self._meet(armed)

    def _meet(self, armed: _Armed) -> None:
        """Wait until every target of a fault that ends ranks has come to where it fires, within a bound.

        Else the first death ends the others on their way there: a collective fails, or the launcher ends them.
        """
        targets = armed.fault.targets(self._world_size)
        if len(targets) < 2 or not armed.fault.ends_rank:
            return
        name = f"fault-{armed.index}-{self._restart}"
        (rank_dir(self._run_dir, self._rank) / name).touch()
        ends = time.monotonic() + self._meeting_s
        while time.monotonic() < ends and not all((rank_dir(self._run_dir, r) / name).exists() for r in targets):
            time.sleep(MEETING_POLL_S)
