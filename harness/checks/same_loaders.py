"""Which data loaders of the ranks are one and the same, though a rank may make some of its own.

Numbers alone do not tell: where rank 0 makes one more, to evaluate by itself, all its later ones have other numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from harness.history import History
from harness.wire import Kind

Numbers = Mapping[tuple[int, int], int]


def same_loaders(history: History, restart: int) -> Numbers:
    """(rank, its loader's number) -> a number that is the same on all ranks, of the loaders of one launch.

    The same are those that are made at one line of the script, by all ranks that came to make a loader, in order. What
    is left is matched in order as well: ranks may make the same loader at different lines.
    """
    sites: dict[int, dict[int, object]] = {}  # rank -> its loaders, as they were made -> where
    for event in history.of(Kind.LOADER, restart=restart):
        sites.setdefault(event.rank, {})[event.data["loader"]] = event.data.get("site")
    on_all = set.intersection(*(set(made.values()) for made in sites.values())) if sites else set()
    numbers: dict[object, int] = {}
    found = {}
    for rank, made in sorted(sites.items()):
        nth: Counter[object] = Counter()
        for loader, site in sorted(made.items()):
            kind = site if site in on_all else None
            place = loader if site is None else nth[kind]  # where no line is on record, the number is all there is
            found[rank, loader] = numbers.setdefault((kind, place), len(numbers))
            nth[kind] += 1
    return found
