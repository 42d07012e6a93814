"""Times on a logarithmic axis, one row a kind of fault: where to put what in an SVG drawing."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.report.words import duration

WIDTH, LEFT, RIGHT, ROW_HEIGHT, TOP = 900, 170, 20, 30, 24


@dataclass(frozen=True, kw_only=True)
class Dot:
    x: float
    kind: str
    label: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """One kind of fault; ``y`` is its middle, ``medians`` (name, x, words)."""

    name: str
    y: float
    dots: tuple[Dot, ...]
    medians: tuple[Dot, ...]


@dataclass(frozen=True, kw_only=True)
class Plot:
    """``ticks``: (x, words) of the decades."""

    width: int
    height: int
    left: int
    right: int
    ticks: tuple[tuple[float, str], ...]
    rows: tuple[Row, ...]


def make_plot(times: Mapping[str, Mapping[str, Sequence[float]]]) -> Plot | None:
    """The drawing of ``times_by_kind``; None if there is nothing to draw. All times are above 0."""
    values = [seconds for row in times.values() for found in row.values() for seconds in found]
    if not values:
        return None
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)

    def x(seconds: float) -> float:
        return round(LEFT + (math.log10(seconds) - low) / (high - low) * (WIDTH - LEFT - RIGHT), 1)

    rows = []
    for number, (name, found) in enumerate(times.items()):
        dots = [Dot(x=x(s), kind=kind, label=f"{kind} {duration(s)}") for kind, each in found.items() for s in each]
        medians = [
            Dot(x=x(statistics.median(each)), kind=kind, label=f"median {kind} {duration(statistics.median(each))}")
            for kind, each in found.items()
            if each
        ]
        y = TOP + ROW_HEIGHT * (number + 0.5)
        rows.append(Row(name=name, y=y, dots=_apart(dots), medians=tuple(medians)))
    ticks = tuple((x(10**power), duration(10.0**power)) for power in range(low, high + 1))
    return Plot(
        width=WIDTH,
        height=TOP + ROW_HEIGHT * len(rows) + 6,
        left=LEFT,
        right=WIDTH - RIGHT,
        ticks=ticks,
        rows=tuple(rows),
    )


def _apart(dots: Sequence[Dot]) -> tuple[Dot, ...]:
    """Of dots at one place one is enough: a thousand runs need not be a thousand circles."""
    return tuple({(dot.kind, round(dot.x)): dot for dot in dots}.values())
