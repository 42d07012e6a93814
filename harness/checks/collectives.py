"""Where the ranks of a group stop issuing the same collectives, and who parted from the others.

Compared is what each rank sent: the k-th of one rank with the k-th of every other. Backends pair them like that
whatever they are, and often in silence. Who is wrong is decided by majority; between two ranks by which of them does
what neither does in other steps; where that names nobody or someone else, by what the fault-free run sent
(harness.checks.due). A rank that left before it sent anything more may yet have left out a call that it came back from,
or put in one that nobody called for (harness.checks.unsent). Error texts are never read: which rank gets which is a
race.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from harness.checks.alignment import How, how_parted, trace_back
from harness.checks.due import Owed, is_left_out, unlike_due
from harness.checks.records import exits
from harness.checks.sent import (
    BEFORE_UPDATE,
    Sent,
    asked,
    calls_by_group,
    canonical,
    describe,
    differ,
    half_step,
    sent_by_group,
)
from harness.checks.unsent import Unsent, unasked_in, unsent_in
from harness.checks.usual import unlike_elsewhere
from harness.checks.vote import minority
from harness.history import Baseline, History
from harness.wire import Event, Kind


@dataclass(frozen=True, kw_only=True)
class Deviation:
    """The first place where the ranks of one group part.

    Attributes:
        rank: who parted from the others; None if the records leave it undecided.
        ranks: all who did, where a majority did not.
        how: what that rank did, compared with the others.
        operation, step, phase: of the collective that was skipped, put in, or differs.
        call: its place in the group's order, from 1.
        at: the record of the deviating rank there (of the lowest rank, if undecided); its last word, if ``is_unsent``.
        met_ns: when the last rank sent what it took for this call.
        sent: per rank what it sent as this call.
        is_unsent: the rank came back from the call, and sent neither this one nor another.
    """

    restart: int
    group: str
    rank: int | None
    ranks: tuple[int, ...]
    how: How
    operation: str
    step: int
    phase: str
    call: int
    at: Event
    met_ns: int
    sent: dict[str, str]
    is_unsent: bool = False


def first_deviation(history: History, restart: int, baseline: Baseline | None = None) -> Deviation | None:
    """The earliest deviation among all groups of one restart; None if what was sent agrees.

    Args:
        baseline: tells who is wrong where the ranks alone do not, and what was put in or left out before a rank died.
    """
    kinds = {group: _alike(sent) for group, sent in calls_by_group(history, restart).items()}
    doubtful = [
        group
        for group, alike in kinds.items()
        if len(alike) > 1 or any(odd(history, restart, group) is not None for odd in (unsent_in, unasked_in))
    ]
    groups = sent_by_group(history, restart) if doubtful else {}  # where all sent the same, no event is looked at
    found = [
        d
        for group, sent in groups.items()
        if group in doubtful and (d := _parted(history, restart, group, sent, kinds[group], baseline)) is not None
    ]
    first = min(found, key=lambda d: d.at.t_ns, default=None)
    owed = unlike_due(history, restart, baseline)
    if owed is None or (first is not None and _is_the_same(first, owed)):
        return first
    return _unlike_baseline(history, restart, owed) or first


def _alike(calls: Mapping[int, tuple[Hashable, ...]]) -> list[int]:
    """One rank for each of the different sequences of collectives: the lowest."""
    firsts: dict[tuple[Hashable, ...], int] = {}
    for rank, mine in sorted(calls.items()):
        firsts.setdefault(mine, rank)
    return [*firsts.values()]


def _parted(
    history: History, restart: int, group: str, sent: Sent, alike: list[int], baseline: Baseline | None
) -> Deviation | None:
    """Where the ranks of one group part, if they do; ``alike`` stand for all of them."""
    index = _first_difference({rank: sent[rank] for rank in alike})
    unsent = unsent_in(history, restart, group)
    if unsent is not None and (index is None or index >= unsent.sent):
        return _left_out(restart, group, sent, unsent)
    if index is None and (unasked := unasked_in(history, restart, group)) is not None:
        return _put_in(restart, group, sent, unasked)
    if index is None:
        index = _missing_at(history, restart, sent)
    return None if index is None else _explain(history, restart, group, sent, index, baseline)


def _is_the_same(found: Deviation, owed: Owed) -> bool:
    """Whether the ranks' own comparison names whom and what that run names: then it knows the place better."""
    return found.rank == owed.rank and found.how in (owed.how, "swapped")


# -- what has to agree ---------------------------------------------------------------------------------------------


def _first_difference(sent: Sent) -> int | None:
    """The index at which the ranks that got so far sent different collectives."""
    for index in range(max(map(len, sent.values()), default=0)):
        here = {rank: events[index] for rank, events in sent.items() if index < len(events)}
        if len(here) < 2:
            return None
        if differ(here.values()) or _is_swap(sent, index, here):
            return index
    return None


def _is_swap(sent: Sent, index: int, here: Mapping[int, Event]) -> bool:
    """Two collectives of one kind in another order on some ranks: only their call sites can show it."""
    sites = {event.data.get("site") for event in here.values()}
    if len(sites) != 2 or None in sites or any(event.data.get("implied") for event in here.values()):
        return False  # ranks may well reach the same collective by different lines, above all a model's own
    nexts = {rank: events[index + 1] for rank, events in sent.items() if index + 1 < len(events)}
    if nexts.keys() != here.keys() or differ(nexts.values()):
        return False
    pairs = {(here[rank].data.get("site"), nexts[rank].data.get("site")) for rank in here}
    return len(pairs) == 2 and {(b, a) for a, b in pairs} == pairs


def _missing_at(history: History, restart: int, sent: Sent) -> int | None:
    """The index of a collective that a rank left out after its last one, although it went past that place.

    A rank that died or waits elsewhere has sent fewer, too; that alone is no deviation.
    """
    left = exits(history, restart)
    all_well = all(rank in left and left[rank].data["code"] == 0 for rank in sent)
    lengths = {rank: len(events) for rank, events in sent.items()}
    short, most = min(lengths.values()), max(lengths.values())
    if short == most:
        return None
    if all_well:
        return short
    longest = next(events for events in sent.values() if len(events) == most)
    for index in range(short, most):
        step = longest[index].step
        if longest[index].data.get("aside"):
            continue  # it may still come, whatever the training has done meanwhile
        if longest[index].phase in BEFORE_UPDATE and any(
            length <= index and any(u.step == step for u in history.of(Kind.UPDATE, rank=rank, restart=restart))
            for rank, length in lengths.items()
        ):
            return index
    return None


# -- who, and what -------------------------------------------------------------------------------------------------


def _explain(
    history: History, restart: int, group: str, sent: Sent, index: int, baseline: Baseline | None
) -> Deviation:
    values = _to_vote_on(sent, index)
    odd = minority(values)
    if odd is None and len(values) == 2:
        rank = _own_count(history, restart, group, values)
        if rank is None:
            rank = unlike_elsewhere(history, restart, group, sent, index, tuple(values), baseline)
        if rank is None:
            rank = _skipper(sent, index, tuple(values), baseline)
        odd = None if rank is None else (rank,)
    odd = odd or ()
    mine = odd[0] if odd else next(iter(values))
    other = next(rank for rank in values if rank not in odd and values[rank] != values[mine])
    if odd:
        index = trace_back(sent, mine, other, index)
    here, there = _at(sent[mine], index), _at(sent[other], index)
    how = how_parted(history, restart, group, sent, mine, other, index, baseline) if odd else "mismatch"
    subject = here if there is None or how == "extra" else there
    assert subject is not None, "of two ranks that differ, one has sent something"
    operation = subject.data["op"]
    if how in ("mismatch", "swapped") and here and there and canonical(here.data["op"]) != canonical(there.data["op"]):
        operation = f"{here.data['op']} against {there.data['op']}"
    return Deviation(
        restart=restart,
        group=group,
        rank=mine if odd else None,
        ranks=odd,
        how=how,
        operation=operation,
        step=subject.step,
        phase=subject.phase,
        call=index + 1,
        at=here or _at(sent[mine], -1) or subject,
        met_ns=max(event.t_ns for events in sent.values() if (event := _at(events, index))),
        sent=_said(sent, index),
    )


def _left_out(restart: int, group: str, sent: Sent, unsent: Unsent) -> Deviation:
    """What a rank came back from and never sent, after all that it had sent by then, as a deviation."""
    index = unsent.sent
    theirs = {rank: events for rank, events in sent.items() if rank != unsent.rank}  # what it sent itself comes after
    others = [(rank, event) for rank, events in theirs.items() if (event := _at(events, index)) is not None]
    for rank, _ in others:
        index = min(index, trace_back(sent, unsent.rank, rank, unsent.sent))
    # A peer may not have come to it, or have gone on to something else.
    peers = [event for _, event in others if canonical(event.data["op"]) == canonical(unsent.operation)]
    place = peers[0] if peers else unsent.place
    return Deviation(
        restart=restart,
        group=group,
        rank=unsent.rank,
        ranks=(unsent.rank,),
        how="skipped",
        operation=unsent.operation,
        step=place.step,
        phase=place.phase,
        call=index + 1,
        at=unsent.word,
        met_ns=max([unsent.word.t_ns, *(event.t_ns for _, event in others)]),
        sent=_said(sent, index),
        is_unsent=True,
    )


def _put_in(restart: int, group: str, sent: Sent, at: Event) -> Deviation:
    """What a rank sent and its script never called for, where all that the ranks sent agrees, as a deviation."""
    index = len(sent[at.rank]) - 1
    return Deviation(
        restart=restart,
        group=group,
        rank=at.rank,
        ranks=(at.rank,),
        how="extra",
        operation=at.data["op"],
        step=at.step,
        phase=at.phase,
        call=index + 1,
        at=at,
        met_ns=max(event.t_ns for events in sent.values() if (event := _at(events, index))),
        sent=_said(sent, index),
    )


def _own_count(history: History, restart: int, group: str, pair: Mapping[int, Hashable]) -> int | None:
    """Of two ranks the one that says itself that it sent more than its script called for."""
    unasked = unasked_in(history, restart, group)
    return unasked.rank if unasked is not None and unasked.rank in pair else None


def _skipper(sent: Sent, index: int, pair: tuple[int, ...], baseline: Baseline | None) -> int | None:
    """Of two ranks the one that left out what the fault-free run always sends at this place, if the other did not."""
    first, second = (_at(sent[rank], index) for rank in pair)
    before = sent[pair[0]][index - 1] if index else None
    if first is None or second is None:
        return None
    skipped = [
        is_left_out(baseline, pair[0], before, second, first),
        is_left_out(baseline, pair[1], before, first, second),
    ]
    return pair[skipped.index(True)] if sum(skipped) == 1 else None


def _unlike_baseline(history: History, restart: int, owed: Owed) -> Deviation | None:
    """What a rank alone did otherwise than in the fault-free run, as a deviation."""
    at, place = owed.at, owed.place
    if at is None:
        return None
    group = at.data["group"]
    sent = sent_by_group(history, restart)[group]
    index = sent[owed.rank].index(at) + (owed.sent is None)
    return Deviation(
        restart=restart,
        group=group,
        rank=owed.rank,
        ranks=(owed.rank,),
        how=owed.how,
        operation=owed.operation,
        step=place.step,
        phase=place.phase,
        call=index + 1,
        at=at,
        met_ns=max([at.t_ns, *(event.t_ns for events in sent.values() if (event := _at(events, index)))]),
        sent=_said(sent, index),
    )


def _said(sent: Sent, index: int) -> dict[str, str]:
    return {
        f"rank {rank}": describe(event) if (event := _at(events, index)) else "nothing more"
        for rank, events in sorted(sent.items())
    }


def _at(events: Sequence[Event], index: int) -> Event | None:
    return events[index] if -len(events) <= index < len(events) else None


def _to_vote_on(sent: Sent, index: int) -> dict[int, Hashable]:
    """Per rank what distinguishes it at this call; one that sent no more has no vote, unless that is the question."""
    here = {rank: events[index] for rank, events in sent.items() if index < len(events)}
    if len(here) > 1 and differ(here.values()):
        return {rank: (asked(event), half_step(event)) for rank, event in here.items()}
    if len(here) < len(sent):
        return {rank: rank in here for rank in sent}
    return {rank: event.data.get("site") for rank, event in here.items()}  # a swap
