"""A rank that came back from a collective which it never sent, or sent one that its script did not ask for, as its own
record tells.

In its last word, and with its next call already if it has one too many, a rank counts the calls that its script came
back from; what it handed to the backend is on record call by call, from further down. A rank that was killed, or whose
call raised, did not come back, so a call too many is one that was answered and not sent. That shows a skip also where
the rank raises at once, by what it finds in the tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from harness.events import Process, view
from harness.history import History
from harness.wire import Event, Kind

COUNTED = (Kind.COLLECTIVE, Kind.EXCEPTION, Kind.EXIT)


@dataclass(frozen=True, kw_only=True)
class Unsent:
    """One rank's count, which its record does not bear out.

    Attributes:
        sent: how many it had sent.
        operation: what the last call was that it came back from.
        place: the last that it did before it counted.
        word: the event that counts.
    """

    rank: int
    sent: int
    operation: str
    place: Event
    word: Event


class Miscounts(NamedTuple):
    """The groups in which a process came back from more calls than it sent, and those to which it sent more than its
    script called for.
    """

    unsent: tuple[str, ...]
    unasked: tuple[str, ...]


@view
def _miscounts(process: Process) -> Miscounts:
    words = [e for e in process.of(*COUNTED) if "returned" in e.data]
    groups = dict.fromkeys(group for word in words for group in word.data["returned"])
    return Miscounts(
        tuple(group for group in groups if _of_process(process, group) is not None),
        tuple(group for group in groups if _unasked_of(process, group) is not None),
    )


def unsent_in(history: History, restart: int, group: str) -> Unsent | None:
    """The first rank to leave that came back from more calls of ``group`` than it sent; None if there is none.

    Nothing is said where lines of the records are damaged: a lost line would look the same.
    """
    if history.damaged:
        return None
    told = history.each(_miscounts)
    odd = [rank for rank in history.ranks if (rank, restart) in told and group in told[rank, restart].unsent]
    found = [one for rank in odd if (one := _of_process(history.process(rank, restart), group)) is not None]
    return min(found, key=lambda one: one.word.t_ns, default=None)


def _of_process(process: Process, group: str) -> Unsent | None:
    word = next((e for e in process.of(*COUNTED) if group in e.data.get("returned", ())), None)
    if word is None or (counted := word.data["returned"].get(group)) is None:
        return None
    calls = [e for e in process.of(Kind.COLLECTIVE) if e.data["group"] == group and e.seq < word.seq]
    sent = [e for e in calls if e.data.get("faulted") != "skipped"]
    if counted["calls"] <= len(sent):
        return None
    mine = process.events
    before = [e for e in mine if e.seq < word.seq and e.kind != Kind.FAULT and e.data.get("faulted") != "skipped"]
    return Unsent(rank=process.rank, sent=len(sent), operation=counted["last"], place=before[-1], word=word)


def unasked_in(history: History, restart: int, group: str) -> Event | None:
    """The last call of the first rank to leave that sent more to ``group`` than its script called for; None: none did.

    Which of its calls nobody asked for is not known: between ranks whose calls are all alike, as the votes of a save
    are, only their number tells.
    """
    if history.damaged:
        return None
    told = history.each(_miscounts)
    odd = [rank for rank in history.ranks if (rank, restart) in told and group in told[rank, restart].unasked]
    found = [one for rank in odd if (one := _unasked_of(history.process(rank, restart), group)) is not None]
    return min(found, key=lambda event: event.t_ns, default=None)


def _unasked_of(process: Process, group: str) -> Event | None:
    words = process.of(Kind.EXCEPTION, Kind.EXIT)
    word = next((e for e in words if group in e.data.get("returned", ())), None)
    if word is None or "raised" not in (counted := word.data["returned"][group]):
        return None  # or an older record
    calls = [e for e in process.of(Kind.COLLECTIVE) if e.data["group"] == group and e.seq < word.seq]
    if any(e.data.get("aside") for e in calls):
        return None  # a thread beside the training may be in the middle of a call
    sent = [e for e in calls if e.data.get("faulted") != "skipped"]
    return sent[-1] if len(sent) > counted["calls"] + counted["raised"] else None
