"""What each rank sent to each group, and which parts of it have to agree."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from harness.events import Process, view
from harness.history import History
from harness.wire import Event, Kind

Sent = Mapping[int, Sequence[Event]]  # of one group: rank -> its collectives, in order

POINT_TO_POINT = {"send", "recv"}  # one rank's send is another's receive: nothing to agree on
UNEVEN = {"alltoall", "gather", "scatter"}  # ranks may send different amounts
BEFORE_UPDATE = ("load_batch", "forward", "backward")  # the phases of a step that its update ends


@functools.cache
def canonical(operation: str) -> str:
    """One spelling for ``all_reduce``, ``allreduce`` and ``_AllReduce``."""
    return operation.replace("_", "").lower()


class Calls(NamedTuple):
    """What one process sent, as far as ranks are compared in it.

    Attributes:
        by_group: (group, of each of its collectives what has to agree, and the line of the script), in order.
    """

    by_group: tuple[tuple[str, tuple[Hashable, ...]], ...]


@view
def calls(process: Process) -> Calls:
    groups: dict[str, list[Hashable]] = {}
    for event in process.of(Kind.COLLECTIVE):
        if _is_compared(event):
            data = event.data
            what = (*asked(event), half_step(event), data.get("site"), bool(data.get("implied")))
            groups.setdefault(data["group"], []).append(what)
    return Calls(tuple((group, tuple(sent)) for group, sent in sorted(groups.items())))


def calls_by_group(history: History, restart: int) -> dict[str, dict[int, tuple[Hashable, ...]]]:
    """As ``sent_by_group``, with what is compared of each collective in place of its event, and in no order."""
    groups: dict[str, dict[int, tuple[Hashable, ...]]] = {}
    members = {(event.data["group"], tuple(event.data["ranks"])) for event in history.of(Kind.GROUP, restart=restart)}
    for group, ranks in members:
        groups.setdefault(group, {}).update(dict.fromkeys(ranks, ()))
    for (rank, launch), sent in history.each(calls).items():
        if launch == restart:
            for group, mine in sent.by_group:
                groups.setdefault(group, {})[rank] = mine
    return groups


def sent_by_group(history: History, restart: int) -> dict[str, dict[int, list[Event]]]:
    """Group -> rank -> the collectives it sent there, in order; a member that sent none has an empty list."""
    groups: dict[str, dict[int, list[Event]]] = {}
    for event in history.of((Kind.GROUP, Kind.COLLECTIVE), restart=restart):
        members = groups.setdefault(event.data["group"], {})
        if event.kind == Kind.GROUP:
            for rank in event.data["ranks"]:
                members.setdefault(rank, [])
        elif _is_compared(event):
            members.setdefault(event.rank, []).append(event)
    return groups


def _is_compared(event: Event) -> bool:
    return event.data.get("faulted") != "skipped" and event.data["op"] not in POINT_TO_POINT


def is_in_step(event: Event) -> bool:
    """Whether this collective was sent, and by the training itself, so that its step and phase say where it belongs."""
    return event.data.get("faulted") != "skipped" and not event.data.get("aside")


def describe(event: Event) -> str:
    """A collective in words: ``all_reduce SUM of 4450 float32 at train.py:61, step 12, backward``."""
    data = event.data
    reduce_op = f" {data['reduce_op']}" if data.get("reduce_op") else ""
    numel = f" of {data['numel']} {data.get('dtype') or ''}".rstrip() if data.get("numel") is not None else ""
    root = f" from rank {data['root']}" if data.get("root") is not None else ""
    site = f" at {data['site']}" if data.get("site") else ""
    return f"{data['op']}{reduce_op}{numel}{root}{site}, step {event.step}, {event.phase}"


def asked(event: Event) -> tuple[Hashable, ...]:
    """What a collective is, without where it comes from."""
    data, operation = event.data, canonical(event.data["op"])
    if operation in UNEVEN:
        return (operation, data.get("root"))
    return (operation, data.get("reduce_op"), data.get("numel"), data.get("dtype"), data.get("root"))


def attempt_of(event: Event) -> int:
    """Which attempt at an update it belongs to: what a gradient scaler leaves out is made again under the same step."""
    return event.step + int(event.data.get("left_out", 0))


def half_step(event: Event) -> int | None:
    """Which half-step it belongs to: odd while an update is tried, even between two; None where ranks may differ.

    Between two updates the tags of healthy ranks differ: one rank alone saves, evaluates or draws the next batch. At
    init and while loading even the step may: rank 0 may know it first. What a thread beside the training sends is in
    any step.
    """
    if event.phase in ("init", "load") or event.data.get("aside"):
        return None
    attempt = attempt_of(event)
    if event.phase in ("forward", "backward"):
        return 2 * attempt - 1
    return 2 * attempt - 2 if event.phase == "load_batch" else 2 * attempt


def differ(events: Iterable[Event]) -> bool:
    """Whether these, sent as one call, are not the same collective."""
    events = list(events)
    first = asked(events[0])
    if any(asked(e) != first for e in events):
        return True
    places = [place for e in events if (place := half_step(e)) is not None]
    # One apart is no other collective: a rank may do a forward pass of its own (rank 0, to evaluate) before it.
    return bool(places) and max(places) - min(places) > 1
