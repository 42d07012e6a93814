"""Which known mistake gives a gradient: each is computed from the same batches, and the value tells.

Every mistake here is one that was reported of real training code; the tests name them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from harness.checks.sketches import Part, Vector, add, dot, head_count, head_sum, norm, reference, scaled

MAX_DIFFERENCE = 0.05  # relative: beyond it a gradient is not what a mistake would give

Parts = Mapping[int, Sequence[Part]]  # by rank


def name_mistake(
    parts: Parts, rank: int, applied: Vector, tolerance: float, *, is_everywhere: bool, before: Vector | None
) -> str | None:
    """In words, the mistake that makes ``rank`` apply this gradient; None if it is none of the known ones.

    Args:
        is_everywhere: all ranks apply this one.
        before: what the rank applied in the update before; None: unknown.
    """
    bound = min(10 * tolerance, MAX_DIFFERENCE)
    for words, vector in _mistakes(parts, None if is_everywhere else rank, before):
        size = norm(vector)
        if size and norm(add(applied, scaled(vector, -1.0))) <= bound * size:
            return words
    for words, vector in _up_to_a_factor(parts, None if is_everywhere else rank):
        factor = dot(applied, vector) / (dot(vector, vector) or 1.0)
        if (
            abs(factor - 1) > bound
            and norm(applied)
            and norm(add(applied, scaled(vector, -factor))) <= bound * norm(applied)
        ):
            return f"{words} times {factor:.6g}{_hint(factor, parts)}"
    return None


def _mistakes(parts: Parts, rank: int | None, before: Vector | None) -> Iterator[tuple[str, Vector]]:
    """Those of ``rank`` alone only if one is given."""
    every, world = [p for ps in parts.values() for p in ps], len(parts)
    heads = every[0].heads
    if before is not None:
        words = "the right gradient and that of the update before: was it set to zero?"
        yield words, add(reference(every), before)
    if not norm(reference(every)):
        return
    if rank is not None:
        own = parts[rank]
        yield "the gradient of this rank's own samples: it was not reduced among the ranks", reference(own)
        yield (
            "this rank's own gradient divided by the targets of all ranks: it was not reduced among the ranks",
            _with_counts(own, lambda head: head_count(every, head)),
        )
    if world > 1:
        yield (
            "the mean of the ranks' means: a target of a rank with fewer targets counts more",
            scaled(add(*(reference(mine) for mine in parts.values())), 1 / world),
        )
        yield "the sum of the ranks' means, not their mean", add(*(reference(mine) for mine in parts.values()))
        yield (
            f"the right gradient divided by the number of ranks once more (1/{world}): DDP divides already",
            scaled(reference(every), 1 / world),
        )
        yield f"the right gradient times the number of ranks ({world})", scaled(reference(every), world)
    if any(len(mine) > 1 for mine in parts.values()):
        yield from _of_micro_batches(parts, rank)
    if len(heads) > 1:
        for name in heads:
            yield (
                f"all heads divided by the number of targets of {name!r}, not each by its own",
                _with_counts(every, lambda _, name=name: head_count(every, name)),  # type: ignore[misc]
            )
        total = sum(head_count(every, name) for name in heads)
        yield (
            "all heads divided by the number of all targets together, not each by its own",
            _with_counts(every, lambda _: total),
        )
        for name in heads:
            yield f"the head {name!r} is missing", _without_head(every, name)
    if all(part.samples is not None for part in every):
        samples = sum(part.samples or 0 for part in every)
        yield (
            "the sum of the losses divided by the number of samples, not of targets",
            _with_counts(every, lambda _: samples),
        )
    for lost in parts if world > 1 else ():
        others = [p for r, ps in parts.items() if r != lost for p in ps]
        yield f"rank {lost}'s samples are missing, and not counted", reference(others)
        yield f"rank {lost}'s samples are missing, and counted", _with_counts(others, lambda h: head_count(every, h))
        yield (
            f"rank {lost}'s samples are missing from the mean of the ranks",
            scaled(add(*(reference(ps) for r, ps in parts.items() if r != lost)), 1 / world),
        )
    yield "the sum over all targets, divided by nothing", _with_counts(every, lambda _: 1.0)
    yield "the sum over all targets, divided by the number of ranks alone", _with_counts(every, lambda _: float(world))


def _of_micro_batches(parts: Parts, rank: int | None) -> Iterator[tuple[str, Vector]]:
    every = [part for mine in parts.values() for part in mine]

    def means(mine: Sequence[Part]) -> Vector:
        return add(*(reference([part]) for part in mine))

    of_a_rank: dict[str, Callable[[Sequence[Part]], Vector]] = {
        "the mean of the micro-batches' means: a target of one with fewer targets counts more": (
            lambda mine: scaled(means(mine), 1 / len(mine))
        ),
        "the sum of the micro-batches' means: not divided by their number": means,
        "the last micro-batch's gradient alone": lambda mine: reference(mine[-1:]),
        "the last micro-batch's mean, divided by the number of micro-batches": (
            lambda mine: scaled(reference(mine[-1:]), 1 / len(mine))
        ),
    }
    for words, of in of_a_rank.items():
        yield words, scaled(add(*(of(mine) for mine in parts.values())), 1 / len(parts))
        if rank is not None:
            yield f"{words}; and it was not reduced among the ranks", of(parts[rank])
    last = [mine[-1] for mine in parts.values()]
    yield "the last micro-batches alone", reference(last)
    yield (
        "the last micro-batches alone, divided by the targets of all",
        _with_counts(last, lambda head: head_count(every, head)),
    )
    if rank is not None:
        others = [mine[-1] for r, mine in parts.items() if r != rank]
        yield (
            "of the other ranks the last micro-batch alone: the earlier ones were not reduced",
            _with_counts([*parts[rank], *others], lambda head: head_count(every, head)),
        )


def _up_to_a_factor(parts: Parts, rank: int | None) -> Iterator[tuple[str, Vector]]:
    every = [p for ps in parts.values() for p in ps]
    yield "the right gradient", reference(every)
    if rank is not None:
        words = "the gradient of this rank's own samples, which was not reduced among the ranks,"
        yield words, reference(parts[rank])
        yield words, _with_counts(parts[rank], lambda head: head_count(every, head))


def _hint(factor: float, parts: Parts) -> str:
    world, windows = len(parts), {len(mine) for mine in parts.values()}
    known = {float(world): "the number of ranks", 1 / world: "1 over the number of ranks"}
    for window in windows - {1}:
        known |= {float(window): "the number of micro-batches", 1 / window: "1 over the number of micro-batches"}
    if 0 < factor < 1 and factor not in known:
        known[factor] = "less than 1: if the script clips its gradients, state clip_norm"
    return next((f", which is {words}" for value, words in known.items() if abs(factor - value) < 1e-3 * value), "")


def _with_counts(parts: Sequence[Part], count: Callable[[str], float]) -> Vector:
    """As the reference, with other denominators."""
    return add(
        *(scaled(head_sum(parts, name), head.weight / max(count(name), 1.0)) for name, head in parts[0].heads.items())
    )


def _without_head(parts: Sequence[Part], missing: str) -> Vector:
    return reference([Part(p.samples, p.has_drawn, {n: h for n, h in p.heads.items() if n != missing}) for p in parts])
