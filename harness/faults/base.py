"""What a fault is: a small frozen dataclass, one file a kind, read by the controller and acted out inside a rank.

Standard library only, so that scenario files can be checked without torch and ranks need nothing of the controller's.
A kind belongs to one family, which says what it acts on and which method a new kind has to write:

    PointFault        an instant: a phase is entered, a failpoint is reached       ``fire()``
    LastingFault      entering a phase, in each of several updates                 ``act()``
    FilesFault        the files of checkpoints (``harness.faults.files``)          ``damage(root)``
    CollectiveFault   one collective call                                          ``replace(call)``
    LoaderFault       one epoch of a DataLoader                                    ``length(batches)``
    BatchFault        one batch that a DataLoader read (``harness.faults.batch``)  ``read(reading)``
    WorkFault         one backward, update, save or load (``harness.faults.work``) ``replace(work)``
    WriteFault        one write of a checkpoint save                               ``part(size_bytes)``

Every kind also says how its effect shows in the records (``missing_effect``): an order that was given but changed
nothing is not a fault that fired.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

from harness.wire import Event, GuaranteeName, Kind, Phase

Level = Literal["process", "device", "host", "communication", "storage", "data", "logic"]
Ends = Literal["always", "maybe", "never"]
Need = Literal["float_batches", "scaler", "buffers"]  # what not every script has
Target = int | Literal["all", "nonzero", "last"] | list[int]
Side = Literal["sent", "received"]

FORBID_EXTRA = {"extra": "forbid"}  # read by pydantic in the controller; plain data here
PLACES = ("step", "phase", "epoch", "failpoint", "collective")


# What is at stake where a launch is ended and the next one goes on from a checkpoint; and where only time is lost.
RESUMED: tuple[GuaranteeName, ...] = (
    "NewestCompleteLoads",
    "RollbackExact",
    "ReplayIdentical",
    "SamplesOnce",
    "EndsLikeBaseline",
)
IN_TIME: tuple[GuaranteeName, ...] = ("EndsInTime", "CulpritNamed", "EndsLikeBaseline")


@dataclass(frozen=True, kw_only=True)
class At:
    """Where a fault fires. What is left out matches anything; of all matches the ``hit``-th is taken.

    Attributes:
        step: update number, from 1 (see harness.wire).
        phase: the phase entered, or the one in which the collective or the write happens.
        epoch: for faults of a loader or a batch: the epoch, from 0.
        failpoint: a named point of a save with its moment, such as ``ckpt.manifest.rename:before``; for ``torn`` the
            name of a write alone, such as ``ckpt.shard.write``.
        collective: the k-th collective, from 1: of the step if ``step`` is given, else of the process's life.
        restart: restart count at which it fires: 0 is the first launch.
        hit: which of the matches, from 1.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = FORBID_EXTRA

    step: int | None = None
    phase: Phase | None = None
    epoch: int | None = None
    failpoint: str | None = None
    collective: int | None = None
    restart: int = 0
    hit: int = 1

    @property
    def places(self) -> tuple[str, ...]:
        """The fields that say where, of those that are given: all but ``restart`` and ``hit``."""
        return tuple(name for name in PLACES if getattr(self, name) is not None)

    def problems(self) -> list[tuple[str, str]]:
        """(field, what is wrong and what is allowed), for one place by itself."""
        found = []
        if self.step is not None and self.step < 1:
            found.append(("step", "must be at least 1: updates count from 1; for before the first use phase = 'init'"))
        if self.epoch is not None and self.epoch < 0:
            found.append(("epoch", "must be at least 0: epochs count from 0"))
        if self.collective is not None and self.collective < 1:
            found.append(("collective", "must be at least 1: collectives count from 1"))
        if self.restart < 0:
            found.append(("restart", "must be at least 0: 0 is the first launch"))
        if self.hit < 1:
            found.append(("hit", "must be at least 1: 1 is the first match"))
        elif self.hit > 1 and self.collective is not None:
            found.append(("hit", "cannot stand beside collective, which counts already; leave one of them out"))
        if self.collective is not None and self.failpoint is not None:
            found.append(("failpoint", "cannot stand beside collective: a fault fires at one of them; leave one out"))
        return found


class Call(Protocol):
    """One collective call, as a CollectiveFault sees it."""

    def issue(self) -> Any:
        """Send it on to the real backend; returns its work handle."""

    def completed(self) -> Any:
        """A work handle that is already done, for a call that is not sent."""

    def issue_like(self, numel: int | None = None) -> None:
        """Send one more of its kind on a scratch tensor of ``numel`` elements (None: as many), and wait for it."""

    def issue_twice(self) -> Any:
        """Send it, wait for it, and send it again; returns the second work handle."""

    def issue_after_the_next(self) -> Any:
        """Send it as soon as the group's next one has been sent; returns a work handle that is already done."""

    def issue_in(self, dtype: str) -> Any:
        """Send its tensors in another dtype, and take what comes back into them; returns a handle that is done."""

    def issue_reduced_by(self, reduce_op: str) -> Any:
        """Send it with another reduce operation; returns its work handle."""

    def issue_flipped(self, side: Side, index: int, bit: int) -> Any:
        """Send it, with one bit inverted of what is sent or of what came back; returns its work handle."""

    def issue_aborted(self) -> Any:
        """Abort the rank's process groups, and send it: it fails now, or when it is waited for."""

    def tell(self, **measured: Any) -> None:
        """Record what was done."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A guarantee that a fault breaks, and what its verdict must name.

    Attributes:
        names_rank: the rank of the fault, if it has only one.
        names_step: the step of the fault, if it states one.
    """

    guarantee: GuaranteeName
    names_rank: bool = False
    names_step: bool = False


# What all ranks hold, and alike, is found in the final state; or when an update is made again, if that state is lost.
UNLIKE_THE_BASELINE = (
    Finding(guarantee="EndsLikeBaseline", names_step=True),
    Finding(guarantee="ReplayIdentical", names_step=True),
)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Base of all kinds; see the module's docstring.

    Attributes:
        kind: which kind of fault.
        rank: where it fires: a rank, a list of ranks, ``all``, ``nonzero`` (all but rank 0) or ``last``.
        at: when it fires; at least one of step, phase, epoch, failpoint and collective.

    Class attributes:
        level: the level of the field's fault model.
        places: the fields of ``At`` that this kind understands, beside ``restart`` and ``hit``.
        needs: what the script must have for the fault to change anything.
        needs_peers: it ends only because other ranks wait for this one, and give up.
        certifies: what a pass says; one sentence for the README's table.
        does_not_certify: what a pass does not say.
        at_stake: the guarantees that are broken if the job does not cope with it; of a fault that leaves something
            wrong, however well the job copes, those of its ``findings``.
        is_told_by_peers: what it raises in a save or a load is said by the other ranks, too.
        may_be_masked: what it changes may be nothing that training reads; then the update is the fault-free run's.
        drawn: values that chaos draws a field from. A field of a Literal that is not listed is drawn from all of it;
            any other keeps its default, or is a small number if it has none.

    What the guarantees demand of a run with it (``outcome = "guaranteed"``, and all of chaos) follows from
    ``ends_launch``, ``findings``, ``may_end_it_first``, ``may_vanish`` and ``may_be_masked``.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = FORBID_EXTRA
    level: ClassVar[Level]
    places: ClassVar[frozenset[str]]
    certifies: ClassVar[str]
    does_not_certify: ClassVar[str]
    at_stake: ClassVar[tuple[GuaranteeName, ...]]
    is_told_by_peers: ClassVar[bool] = False
    may_be_masked: ClassVar[bool] = False
    drawn: ClassVar[Mapping[str, Sequence[Any]]] = {}
    needs: ClassVar[frozenset[Need]] = frozenset()
    needs_peers: ClassVar[bool] = False

    kind: str
    rank: Target
    at: At = field(default_factory=At)

    def targets(self, world_size: int) -> tuple[int, ...]:
        """The global ranks this fault is planned on, ascending."""
        match self.rank:
            case "all":
                return tuple(range(world_size))
            case "nonzero":
                return tuple(range(1, world_size))
            case "last":
                return (world_size - 1,)
            case int(rank):
                return (rank,)
            case ranks:
                return tuple(sorted(ranks))

    def problems(self) -> list[tuple[str, str]]:
        """(field, what is wrong and what is allowed) for settings that cannot work together."""
        return []

    @property
    def ends_rank(self) -> bool:
        """Whether the target's process goes no further by this fault itself."""
        return False

    @property
    def ends_launch(self) -> Ends:
        """Whether all ranks have to be started again because of it."""
        return "always" if self.ends_rank else "never"

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The guarantees of which one must be found broken; empty if nothing stays wrong once the job is started again.

        Of a fault that hits all ranks alike, none differs: then it is the fault-free run that tells, by the state that
        the job ends with, or that it had before a restart: see ``UNLIKE_THE_BASELINE``.
        """
        return ()

    @property
    def may_end_it_first(self) -> bool:
        """Whether the launch may end, with this rank named as the cause, before any of the findings is on record."""
        return False

    @property
    def may_vanish(self) -> bool:
        """Whether what it did may be gone, in sound training, before anything came of it."""
        return False

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        """None if the records prove that it took effect, else what should have been seen and was not.

        Args:
            fired: the ``fault`` event.
            after: the same process's later events, in order.
        """
        raise NotImplementedError


class PointFault(Fault):
    at_stake: ClassVar[tuple[GuaranteeName, ...]] = RESUMED

    @property
    def ends_launch(self) -> Ends:
        return "always" if self.ends_rank else "maybe"  # a rank that hangs, or is slow, may be given up by its peers

    def fire(self) -> None:
        """Do it, in the rank's main thread; may not return."""
        raise NotImplementedError


class LastingFault(Fault):
    """Acts when its phase is entered, in each of ``lasts()`` successive updates from the one at which it fires."""

    at_stake: ClassVar[tuple[GuaranteeName, ...]] = IN_TIME

    def lasts(self) -> int:
        """In how many updates it acts."""
        raise NotImplementedError

    def act(self) -> dict[str, Any]:
        """Do it, in the rank's main thread; returns what was measured, for the record."""
        raise NotImplementedError


class CollectiveFault(Fault):
    at_stake: ClassVar[tuple[GuaranteeName, ...]] = ("CollectivesAgree",)

    @property
    def ends_launch(self) -> Ends:
        return "maybe"  # unless later calls pair up, somebody waits until the timeout

    @property
    def findings(self) -> tuple[Finding, ...]:
        return (Finding(guarantee="CollectivesAgree", names_rank=True, names_step=True),)

    def acts_on(self, calls: Sequence[Sequence[Any]], number: int) -> bool:
        """Whether it changes anything if the ``number``-th, from 1, of an update's calls is the one.

        Args:
            calls: (operation, reduce operation, number of elements, dtype) of each, in order.
        """
        return True

    def replace(self, call: Call) -> Any:
        """Act in place of the collective; returns the work handle that the training code gets."""
        raise NotImplementedError


class LoaderFault(Fault):
    at_stake: ClassVar[tuple[GuaranteeName, ...]] = ("LoadersAgree",)

    @property
    def ends_launch(self) -> Ends:
        return "maybe"

    @property
    def findings(self) -> tuple[Finding, ...]:
        return (Finding(guarantee="LoadersAgree", names_rank=True),)

    def length(self, batches: int) -> int:
        """How many of an epoch's ``batches`` are handed out."""
        raise NotImplementedError


class WriteFault(Fault):
    at_stake: ClassVar[tuple[GuaranteeName, ...]] = ("OnlyCompleteLoads", "AcknowledgedSurvives", "RetentionSafe")

    def part(self, size_bytes: int) -> int:
        """How many bytes of this write reach the file before the process is killed."""
        raise NotImplementedError


def not_a_duration(field_name: str, value_s: float) -> list[tuple[str, str]]:
    """What is wrong with a field that says how long something takes, in seconds; empty if nothing is."""
    return [] if 0 < value_s < math.inf else [(field_name, "must be a number of seconds above 0, and finite")]


def work_after(fault: Fault, after: Sequence[Event]) -> str | None:
    """None if the process did no more work after the fault, else the event that should not be there.

    Its last words (an exception leaving, the exit) are no work.
    """
    for event in after:
        if event.kind not in (Kind.EXCEPTION, Kind.EXIT):
            return f"the process went on after {fault.kind}: {event.kind} at {event.where}"
    return None


def not_surfaced(error: str, words: str, fired: Event, after: Sequence[Event]) -> str | None:
    """None if an exception that a fault raised left the training script, or came out as a checkpoint store's answer.

    Args:
        error: its type.
        words: of its message; a store that gives a save or a load up for it says them again.
    """
    for event in after:
        if event.kind == Kind.EXCEPTION and (event.data["type"].endswith(error) or words in str(event.data["message"])):
            return None
        if event.kind in (Kind.SAVE_ERROR, Kind.LOAD_ERROR) and words in str(event.data["error"]):
            return None
    return f"no {error} left the training script after {fired.where}: was it caught there?"


def effects_of(fired: Event, after: Sequence[Event]) -> list[Event]:
    """What was measured each time this fault acted, in order."""
    return [e for e in after if e.kind == Kind.EFFECT and e.data["index"] == fired.data["index"]]


def effect_of(fired: Event, after: Sequence[Event]) -> Mapping[str, Any] | None:
    """What was measured when this fault acted first; None if it came to nothing that could be measured."""
    return next((event.data for event in effects_of(fired, after)), None)


def missing_collective(
    faulted: Literal["skipped", "extra"], fired: Event, after: Sequence[Event], *, numel: int | None = None
) -> str | None:
    """None if a collective marked ``faulted`` is on record after the fault, else what is there.

    Args:
        numel: its number of elements; None: any.
    """
    marked = [e for e in after if e.kind == Kind.COLLECTIVE and e.data.get("faulted") == faulted]
    if not marked:
        return f"no {faulted} collective is on record after {fired.where}"
    if numel is not None and marked[0].data["numel"] != numel:
        return f"the {faulted} collective at {marked[0].where} has {marked[0].data['numel']} elements, not {numel}"
    return None


def changed_from(what: str, fired: Event, after: Sequence[Event]) -> str | None:
    """None if a call was sent with another ``what`` than it had (effect: ``before``, ``after``), else why not."""
    effect = effect_of(fired, after)
    if effect is None:
        return f"nothing is on record of what was changed at {fired.where}"
    if effect["before"] is None:
        return f"the collective at {fired.where} has no {what}"
    if effect["before"] == effect["after"]:
        return f"the collective at {fired.where} had {what} {effect['after']} already"
    return None


def numel_problems(numel: int | None) -> list[tuple[str, str]]:
    """The problem of a number of elements that no tensor to be sent can have."""
    return [] if numel is None or numel >= 1 else [("numel", "must be at least 1")]
