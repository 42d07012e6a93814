"""Where the ranks of a group stop issuing the same collectives, and who parted from the others.

Compared is what each rank sent: the k-th of one rank with the k-th of every other. Backends pair them like that
whatever they are, and often in silence. Who is wrong is decided by majority; between two ranks by which of them does
what neither does in other steps; where that names nobody, by what the fault-free run sent (harness.checks.due). Error
texts are never read: which rank gets which is a race.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.checks.due import Owed, unlike_due
from harness.checks.records import exits
from harness.checks.sent import BEFORE_UPDATE, Sent, asked, canonical, describe, differ, half_step, sent_by_group
from harness.checks.usual import profile_of, unlike_elsewhere, usual_profiles
from harness.checks.vote import minority
from harness.history import Baseline, History
from harness.wire import PHASES, Event, Kind

How = Literal["skipped", "extra", "swapped", "mismatch"]

_WINDOW = 16  # collectives that have to fit again after one is left out or put in


@dataclass(frozen=True, kw_only=True)
class Deviation:
    """The first place where the ranks of one group part.

    Attributes:
        rank: who parted from the others; None if the records leave it undecided.
        ranks: all who did, where a majority did not.
        how: what that rank did, compared with the others.
        operation, step, phase: of the collective that was skipped, put in, or differs.
        call: its place in the group's order, from 1.
        at: the record of the deviating rank there (of the lowest rank, if undecided).
        met_ns: when the last rank sent what it took for this call.
        sent: per rank what it sent as this call.
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


def first_deviation(history: History, restart: int, baseline: Baseline | None = None) -> Deviation | None:
    """The earliest deviation among all groups of one restart; None if what was sent agrees.

    Args:
        baseline: tells who is wrong where the ranks alone do not, and what was put in or left out before a rank died.
    """
    found = [
        _explain(history, restart, group, sent, index, baseline)
        for group, sent in sent_by_group(history, restart).items()
        if (index := _first_difference(sent)) is not None or (index := _missing_at(history, restart, sent)) is not None
    ]
    first = min(found, key=lambda d: d.at.t_ns, default=None)
    if (first is None or first.rank is None) and (owed := unlike_due(history, restart, baseline)) is not None:
        return _unlike_baseline(history, owed) or first
    return first


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
    if len(sites) != 2 or None in sites:
        return False  # ranks may well reach the same collective by different lines
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
        rank = unlike_elsewhere(history, restart, group, sent, index, tuple(values), baseline)
        odd = None if rank is None else (rank,)
    odd = odd or ()
    mine = odd[0] if odd else next(iter(values))
    other = next(rank for rank in values if rank not in odd and values[rank] != values[mine])
    if odd:
        index = _trace_back(sent, mine, other, index)
    here, there = _at(sent[mine], index), _at(sent[other], index)
    how = _how(history, restart, group, sent, mine, other, index) if odd else "mismatch"
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


def _unlike_baseline(history: History, owed: Owed) -> Deviation | None:
    """What a rank alone did otherwise than in the fault-free run, as a deviation."""
    at, place = owed.at, owed.place
    if at is None:
        return None
    group = at.data["group"]
    sent = sent_by_group(history, 0)[group]
    index = sent[owed.rank].index(at) + (owed.sent is None)
    return Deviation(
        restart=0,
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


def _trace_back(sent: Sent, rank: int, other: int, index: int) -> int:
    """The index at which ``rank`` really parted: equal collectives from other lines of the script hide it at first."""
    mine, theirs = sent[rank], sent[other]
    start = index
    while start > 0 and mine[start - 1].data.get("site") != theirs[start - 1].data.get("site"):
        start -= 1
    for i in range(start, index):
        for a, b in ((i, i + 1), (i + 1, i)):
            if _fits(mine[a:], theirs[b:], at_least=index - i, with_site=True):
                return i
    return index


def _fits(mine: Sequence[Event], theirs: Sequence[Event], *, at_least: int, with_site: bool) -> bool:
    """Whether the next collectives of both agree, as far as both are on record."""
    length = min(len(mine), len(theirs), _WINDOW)
    if length < max(1, at_least):
        return False
    return not any(
        differ(pair) or (with_site and pair[0].data.get("site") != pair[1].data.get("site"))
        for pair in zip(mine[:length], theirs[:length], strict=True)
    )


def _how(history: History, restart: int, group: str, sent: Sent, rank: int, other: int, index: int) -> How:
    mine, theirs = sent[rank], sent[other]
    if index >= len(mine):
        return "skipped"
    if index >= len(theirs):
        return "extra"
    if _crossed(mine, theirs, index):
        return "swapped"
    for with_site in (True, False):
        skips = _fits(mine[index:], theirs[index + 1 :], at_least=1, with_site=with_site)
        adds = _fits(mine[index + 1 :], theirs[index:], at_least=1, with_site=with_site)
        if skips != adds:
            return "skipped" if skips else "extra"
    here, there = mine[index], theirs[index]
    here_place, there_place = half_step(here), half_step(there)
    if here_place is not None and there_place is not None and here_place != there_place:
        return "skipped" if here_place > there_place else "extra"
    if here.phase != there.phase and here.data.get("site") != there.data.get("site"):
        is_ahead = PHASES.index(here.phase) > PHASES.index(there.phase)
        return "skipped" if is_ahead else "extra"
    # The others have sent nothing after it yet; a usual step of the same phase tells what would have come.
    usual = [profile for profile, _ in usual_profiles(history, group, restart, there).most_common(1)]
    position = len(profile_of(theirs[:index], there.step, there.phase))
    if usual and position + 1 < len(usual[0]):
        following = usual[0][position + 1]
        if following == (*asked(here), here.data.get("site")):
            return "skipped"
    return "mismatch"


def _crossed(mine: Sequence[Event], theirs: Sequence[Event], index: int) -> bool:
    if index + 1 >= min(len(mine), len(theirs)):
        return False
    a, b, c, d = mine[index], mine[index + 1], theirs[index], theirs[index + 1]
    crossed = not differ((a, d)) and not differ((b, c))
    if asked(a) == asked(c):
        return crossed and a.data.get("site") == d.data.get("site") != b.data.get("site") == c.data.get("site")
    return crossed and half_step(a) == half_step(b)
