"""Sketches of gradients, as harness.rank.gradients records them, and what they add up to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Numbers = tuple[float, ...]


@dataclass(frozen=True)
class Vector:
    """A gradient: of each parameter a few numbers, linear in it and of about its norm."""

    parts: tuple[Numbers, ...]

    @classmethod
    def of(cls, raw: Iterable[Iterable[float]]) -> Vector:
        return cls(tuple(tuple(map(float, part)) for part in raw))


@dataclass(frozen=True)
class Head:
    """A loss of one batch: the gradient of its sum over ``count`` targets."""

    count: float
    weight: float
    sum: Vector


@dataclass(frozen=True)
class Part:
    """One batch of an update.

    Attributes:
        samples: how many; None: unknown.
        has_drawn: whether the model drew random numbers.
        heads: by name.
    """

    samples: int | None
    has_drawn: bool
    heads: dict[str, Head]

    @classmethod
    def of(cls, raw: Any) -> Part:
        heads = {
            name: Head(float(head["count"]), float(head["weight"]), Vector.of(head["sum"]))
            for name, head in raw["heads"].items()
        }
        return cls(raw["samples"], bool(raw["has_drawn"]), heads)


def add(*vectors: Vector) -> Vector:
    of_each_parameter = zip(*(vector.parts for vector in vectors), strict=True)
    return Vector(tuple(tuple(map(sum, zip(*parts, strict=True))) for parts in of_each_parameter))


def scaled(vector: Vector, factor: float) -> Vector:
    return Vector(tuple(tuple(factor * x for x in part) for part in vector.parts))


def dot(a: Vector, b: Vector) -> float:
    return sum(x * y for p, q in zip(a.parts, b.parts, strict=True) for x, y in zip(p, q, strict=True))


def norm(of: Vector | Numbers) -> float:
    """About the norm of the gradient itself."""
    parts: Sequence[Numbers] = of.parts if isinstance(of, Vector) else (of,)
    return math.sqrt(sum(x * x for part in parts for x in part) / max(1, len(parts[0]) if parts else 1))


def head_sum(parts: Sequence[Part], head: str) -> Vector:
    """The gradient of the head's loss, summed over all its targets in ``parts``."""
    return add(*(part.heads[head].sum for part in parts))


def head_count(parts: Sequence[Part], head: str) -> float:
    return sum(part.heads[head].count for part in parts)


def reference(parts: Sequence[Part]) -> Vector:
    """The gradient of the mean over all targets of ``parts``, of each head by itself, its weight applied."""
    return add(
        *(
            scaled(head_sum(parts, name), head.weight / max(head_count(parts, name), 1.0))
            for name, head in parts[0].heads.items()
        )
    )
