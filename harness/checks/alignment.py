"""How the orders of two ranks fit each other around the place where they part: what was left out, put in or swapped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from harness.checks.due import is_left_out
from harness.checks.sent import Sent, asked, differ, half_step
from harness.checks.usual import profile_of, usual_profiles
from harness.history import Baseline, History
from harness.wire import PHASES, Event, Kind

How = Literal["skipped", "extra", "swapped", "mismatch"]

_WINDOW = 16  # collectives that have to fit again after one is left out or put in


def trace_back(sent: Sent, rank: int, other: int, index: int) -> int:
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


def how_parted(
    history: History,
    restart: int,
    group: str,
    sent: Sent,
    rank: int,
    other: int,
    index: int,
    baseline: Baseline | None,
) -> How:
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
    if is_left_out(baseline, rank, mine[index - 1] if index else None, there, here):
        return "skipped"
    if here.phase != there.phase and here.data.get("site") != there.data.get("site"):
        is_ahead = _is_ahead(history, here, there)
        if is_ahead is not None:
            return "skipped" if is_ahead else "extra"
    # The others have sent nothing after it yet; a usual step of the same phase tells what would have come.
    usual = [profile for profile, _ in usual_profiles(history, group, restart, there).most_common(1)]
    position = len(profile_of(theirs[:index], there))
    if usual and position + 1 < len(usual[0]):
        following = usual[0][position + 1]
        if following == (*asked(here), here.data.get("site")):
            return "skipped"
    return "mismatch"


def _is_ahead(history: History, here: Event, there: Event) -> bool | None:
    """Whether the first is of a later place in the script; None if nothing tells.

    Some scripts evaluate before they save and some after: a step in which a rank does both tells which.
    """
    if here.step != there.step or {here.phase, there.phase} != {"eval", "save"}:
        return (here.step, PHASES.index(here.phase)) > (there.step, PHASES.index(there.phase))
    first: dict[tuple[int, int, int], str] = {}
    for event in history.of(Kind.PHASE):
        if event.phase in ("eval", "save"):
            before = first.setdefault((event.rank, event.restart, event.step), event.phase)
            if before != event.phase:
                return there.phase == before
    return None


def _crossed(mine: Sequence[Event], theirs: Sequence[Event], index: int) -> bool:
    if index + 1 >= min(len(mine), len(theirs)):
        return False
    a, b, c, d = mine[index], mine[index + 1], theirs[index], theirs[index + 1]
    crossed = not differ((a, d)) and not differ((b, c))
    if asked(a) == asked(c):
        return crossed and a.data.get("site") == d.data.get("site") != b.data.get("site") == c.data.get("site")
    return crossed and half_step(a) == half_step(b)
