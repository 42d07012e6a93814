"""Is each update made with the gradient that its samples have, added up over all ranks in float64?

Two accounts are kept apart. In numbers: what each rank applies against the reference. In communication: whether that
many elements were reduced among the ranks at all; for ranks with equal samples the numbers look right without.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from harness.checks.base import Verdict, guarantee, invalid, not_applicable, unknown, valid
from harness.checks.mistakes import name_mistake
from harness.checks.records import by_rank, listed
from harness.checks.sketches import Part, Vector, add, dot, norm, reference, scaled
from harness.history import Baseline, History
from harness.scenario import Gradient
from harness.wire import Event, Kind

# Of a single parameter's gradient more may differ, and below this share of the whole it is compared as if so large.
OF_ONE, SMALL = 3.0, 0.1
HALF_PRECISION = 0.1  # relative: so much may be rounding, in half precision
REDUCES = frozenset({"all_reduce", "reduce_scatter", "reduce", "all_gather"})


@dataclass(frozen=True)
class Judged:
    """One update as all ranks recorded it.

    Attributes:
        place: restart count and step.
        applied: rank -> the gradient that its optimizer applied.
        parts: rank -> its batches.
    """

    place: tuple[int, int]
    events: Mapping[int, Event]
    applied: Mapping[int, Vector]
    parts: Mapping[int, list[Part]]


@guarantee(
    "GradientRight",
    "an update is made with the gradient of all its samples, on all ranks together, as one process has it in float64",
)
def gradient_right(history: History, _: Baseline | None) -> Verdict:
    wanted = history.plan.gradient
    if wanted is None:
        return not_applicable("the scenario has no [gradient], which says what the losses are")
    events = by_rank(history.of(Kind.GRADIENT))
    for event in events:
        if "error" in event.data:
            return unknown(f"the gradients of update {event.step} cannot be told: {event.data['error']}", event)
    found = _complete(history, events)
    if not found:
        return unknown("no update's gradients are on record of all ranks; does one of gradient.updates come?")
    if missing := sorted(set(wanted.updates or ()) - {judged.place[1] for judged in found}):
        return unknown(f"of gradient.updates, {', '.join(map(str, missing))} did not come on all ranks")
    largest = 0.0
    before: dict[tuple[int, int], Judged] = {}
    for judged in found:
        before[judged.place] = judged
        right = reference([part for parts in judged.parts.values() for part in parts])
        for rank, applied in judged.applied.items():
            earlier = before.get((judged.place[0], judged.place[1] - 1))
            verdict, difference = _compare(judged, rank, applied, right, wanted, earlier)
            if verdict is not None:
                return verdict
            largest = max(largest, difference)
    for judged in found:
        if (verdict := _unreduced(history, judged)) is not None:
            return verdict
    heads = {name for judged in found for parts in judged.parts.values() for part in parts for name in part.heads}
    return valid(
        f"the gradients of {len(found)} updates are those of float64, to {largest:.0e} of their norm",
        heads=sorted(heads),
    )


def _complete(history: History, events: Iterable[Event]) -> list[Judged]:
    """The updates that all ranks recorded, in order; where a rank was stopped before, there is nothing to add up."""
    by_update: dict[tuple[int, int], dict[int, Event]] = {}
    for event in events:
        by_update.setdefault((event.restart, event.step), {})[event.rank] = event
    return [
        Judged(
            place=place,
            events=ranks,
            applied={rank: Vector.of(event.data["applied"]) for rank, event in sorted(ranks.items())},
            parts={rank: [Part.of(part) for part in event.data["parts"]] for rank, event in sorted(ranks.items())},
        )
        for place, ranks in sorted(by_update.items())
        if len(ranks) == history.plan.ranks
    ]


def _compare(
    judged: Judged, rank: int, applied: Vector, right: Vector, wanted: Gradient, earlier: Judged | None
) -> tuple[Verdict | None, float]:
    """What is wrong with a rank's gradient, if anything; and its relative difference."""
    event = judged.events[rank]
    expected, clipped = right, ""
    if wanted.clip_norm is not None:
        factor = dot(applied, right) / (dot(right, right) or 1.0)
        is_clipped = 0 < factor < 1 - wanted.tolerance
        bound = wanted.clip_norm * (1 + 1e-3)
        if event.data["norm"] > bound:
            clipped = f"its norm is {event.data['norm']:.4g}, and clip_norm says at most {wanted.clip_norm:g}"
        elif is_clipped and event.data["norm"] < wanted.clip_norm * (1 - 1e-3):
            clipped = f"it was clipped to {event.data['norm']:.4g}, and clip_norm says {wanted.clip_norm:g}; "
            clipped += "are gradients unscaled before they are clipped, on all ranks alike?"
        expected = scaled(right, factor) if is_clipped else right
    difference = add(applied, scaled(expected, -1.0))
    total = norm(expected)
    odd = [
        name
        for name, part, own in zip(event.data["names"], difference.parts, expected.parts, strict=True)
        if not norm(part) <= wanted.tolerance * (OF_ONE * norm(own) + SMALL * total)  # NaN is odd as well
    ]
    relative = norm(difference) / total if total else float(norm(difference) > 0)
    if not odd and not clipped and relative <= wanted.tolerance:
        return None, relative
    if (drawing := _drawn_elsewhere(judged)) is not None:
        return drawing, relative
    size = norm(applied) / norm(right) if norm(right) else float("inf")
    alike = [r for r, other in judged.applied.items() if _is_same(other, applied)]
    known = name_mistake(
        judged.parts,
        rank,
        applied,
        wanted.tolerance,
        is_everywhere=len(alike) == len(judged.applied),
        before=None if earlier is None else earlier.applied[rank],
    )
    if not math.isfinite(norm(applied)):
        known = f"the gradient is {norm(applied)}"
    what = clipped or known or _where(odd, event.data["names"])
    if not clipped and wanted.tolerance < relative < HALF_PRECISION:
        what += "; if the script computes in half precision, state tolerance = 2e-2"
    return (
        invalid(
            f"update {event.step}, {listed(alike or [rank])}: {what}",
            event,
            operation="backward",
            seen={
                "size beside the right one": round(size, 4),
                "relative difference": round(relative, 6),
                "parameters": odd[:20],
                "targets": {
                    head: {f"rank {r}": sum(p.heads[head].count for p in parts) for r, parts in judged.parts.items()}
                    for head in next(iter(judged.parts.values()))[0].heads
                },
            },
        ),
        relative,
    )


def _is_same(a: Vector, b: Vector) -> bool:
    return a == b or norm(add(a, scaled(b, -1.0))) <= 1e-6 * norm(a)


def _where(odd: list[str], names: list[str]) -> str:
    if not odd:
        return "the gradient is not that of its samples"
    where = "all parameters" if len(odd) == len(names) else ", ".join(odd[:5]) + (", ..." if len(odd) > 5 else "")
    return f"the gradient is not that of its samples in {where}"


def _drawn_elsewhere(judged: Judged) -> Verdict | None:
    """A GPU need not draw the same random numbers for float64, so dropout leaves out others."""
    has_drawn = any(part.has_drawn for parts in judged.parts.values() for part in parts)
    event = next(iter(judged.events.values()))
    if has_drawn and event.data["device"] != "cpu":
        return unknown("the model draws random numbers on a GPU, others in float64: set its dropout to 0", event)
    return None


def _unreduced(history: History, judged: Judged) -> Verdict | None:
    """A rank that came to the update without reducing as many elements as it has gradients."""
    if history.plan.ranks == 1:
        return None
    whole = {e.data["group"] for e in history.of(Kind.GROUP) if sorted(e.data["ranks"]) == list(history.ranks)}
    for rank, event in sorted(judged.events.items()):
        sent = [
            e
            for e in history.of(Kind.COLLECTIVE, rank=rank, restart=event.restart)
            if e.step == event.step
            and e.phase == "backward"
            and e.data["op"] in REDUCES
            and e.data["group"] in whole
            and e.data.get("faulted") != "skipped"
        ]
        numel = sum(e.data["numel"] for e in sent)
        if numel < event.data["numel"]:
            return invalid(
                f"update {event.step}, rank {rank}: of {event.data['numel']} elements of gradients only {numel} were "
                "reduced among the ranks, though they look right: samples that differ would part the ranks",
                event,
                operation="all_reduce",
                seen={"reduced": numel, "gradients": event.data["numel"]},
            )
    return None
