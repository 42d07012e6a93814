"""What a step usually holds: how two ranks that differ are told apart, where no majority can."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any

from harness.checks.records import began_at_zero
from harness.checks.sent import Sent, asked, attempt_of, is_in_step
from harness.checks.vote import rarest
from harness.history import Baseline, History
from harness.wire import PHASES, Event, Kind

_RECORDED = ("op", "reduce_op", "numel", "dtype")  # of each collective, in ``Baseline.collectives``
_ONCE_IN_A_WHILE = ("init", "save", "load", "eval", "teardown")  # phases that most steps do not have


def unlike_elsewhere(
    history: History, restart: int, group: str, sent: Sent, index: int, pair: tuple[int, ...], baseline: Baseline | None
) -> int | None:
    """Of two ranks the one whose collectives, where they part, are unlike those of both in other steps.

    A skip by one rank and an extra collective by the other look alike, call by call; only what such a step usually
    holds tells them apart. Where no other step is on record, the fault-free run says how many there should be; where
    none is like this one, which.
    """
    here = [events[index] for rank, events in sent.items() if rank in pair and index < len(events)]
    first = min(here, key=lambda e: (attempt_of(e), PHASES.index(e.phase)))
    usual = usual_profiles(history, group, restart, first)
    fitting: dict[int, int] = {}
    for rank in pair:
        profile = profile_of(sent[rank], first)
        is_cut = bool(sent[rank]) and _is_together(sent[rank][-1], first)
        if usual:
            fitting[rank] = sum(
                count
                for other, count in usual.items()
                if profile and (other == profile or (is_cut and other[: len(profile)] == profile))
            )
        else:
            due = _due(history, restart, rank, first, baseline)
            sent_here = sum((e.step, e.phase) == (first.step, first.phase) for e in _all_sent(history, rank, restart))
            fitting[rank] = due is not None and (sent_here == due or (is_cut and sent_here < due))
    found = rarest(fitting)
    return _unlike_due(history, restart, pair, sent, first, baseline) if found is None else found


def _unlike_due(
    history: History, restart: int, pair: tuple[int, ...], sent: Sent, place: Event, baseline: Baseline | None
) -> int | None:
    """Of two ranks the one that sent, in a step unlike all others, something else than the fault-free run did there."""
    fitting: dict[int, int] = {}
    for rank in pair:
        if baseline is None or not baseline.repeatable or _due(history, restart, rank, place, baseline) is None:
            return None
        due = [tuple(call) for call in baseline.collectives.get(rank, {}).get(place.step, {}).get(place.phase, ())]
        mine = [tuple(e.data.get(name) for name in _RECORDED) for e in sent[rank] if _is_together(e, place)]
        fitting[rank] = bool(mine) and due[: len(mine)] == mine
    return rarest(fitting)


def _due(history: History, restart: int, rank: int, place: Event, baseline: Baseline | None) -> int | None:
    """How many collectives this rank should send in this step and phase; None if nothing tells."""
    done = [e.step for e in history.of(Kind.UPDATE, rank=rank, restart=restart)]
    is_known = baseline is not None and rank in baseline.collectives and place.phase != "init"
    if baseline is not None and is_known and began_at_zero(history, rank, restart):
        # A resumed launch sends other collectives in its first steps than the undisturbed one in those steps.
        return len(baseline.collectives[rank].get(place.step, {}).get(place.phase, ()))
    others = [step for step in done if step != place.step]
    return 0 if others and place.phase not in _ONCE_IN_A_WHILE else None  # no other step has any in this phase


def _all_sent(history: History, rank: int, restart: int) -> list[Event]:
    return [e for e in history.of(Kind.COLLECTIVE, rank=rank, restart=restart) if is_in_step(e)]


def profile_of(events: Iterable[Event], place: Event) -> tuple[Hashable, ...]:
    """What was sent in this place's phase of its attempt at an update."""
    return tuple((*asked(e), e.data.get("site")) for e in events if _is_together(e, place))


def _is_together(one: Event, other: Event) -> bool:
    return attempt_of(one) == attempt_of(other) and one.phase == other.phase


def usual_profiles(history: History, group: str, restart: int, place: Event) -> Counter[tuple[Hashable, ...]]:
    """What ranks send to this group in this phase of other attempts (in any restart) -> how often."""
    profiles: dict[tuple[int, int, int], list[Any]] = {}
    for event in history.of(Kind.COLLECTIVE):
        same_step = event.restart == restart and attempt_of(event) == attempt_of(place)
        # A resumed launch begins otherwise than the first.
        other_start = event.phase in ("init", "load") and (event.restart == 0) != (restart == 0)
        if same_step or other_start or event.phase != place.phase or event.data["group"] != group:
            continue
        if event.data.get("faulted") != "skipped":
            key = (event.rank, event.restart, attempt_of(event))
            profiles.setdefault(key, []).append((*asked(event), event.data.get("site")))
    return Counter(tuple(profile) for profile in profiles.values())
