"""Who is the odd one out, by majority: never by who was looked at first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping


def minority(values: Mapping[int, Hashable]) -> tuple[int, ...] | None:
    """The ranks whose value differs from that of more than half of all, ascending.

    Returns:
        () if all agree, None if no value has a majority: then the vote decides nothing.
    """
    if not values:
        return ()
    value, votes = Counter(values.values()).most_common(1)[0]
    if 2 * votes <= len(values):
        return None
    return tuple(sorted(rank for rank, mine in values.items() if mine != value))


def rarest(counts: Mapping[int, int]) -> int | None:
    """The rank with the strictly smallest count; None on a tie."""
    ordered = sorted(counts, key=lambda rank: counts[rank])
    if len(ordered) > 1 and counts[ordered[0]] == counts[ordered[1]]:
        return None
    return ordered[0] if ordered else None
