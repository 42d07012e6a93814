"""Less looking for garbage, and afterwards as often as before."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from harness.crashstates.garbage import rarely_collected


@pytest.fixture(autouse=True)
def usual() -> Iterator[tuple[int, int, int]]:
    usual = gc.get_threshold()
    yield usual
    gc.set_threshold(*usual)


def num_collections(num_objects: int) -> int:
    before: int = gc.get_stats()[0]["collections"]
    kept: list[list[int]] = [[] for _ in range(num_objects)]
    after: int = gc.get_stats()[0]["collections"]
    return after - before if kept else 0


def test_it_is_rare_meanwhile_and_as_usual_afterwards(usual: tuple[int, int, int]) -> None:
    gc.collect()
    with rarely_collected(1_000_000):
        assert num_collections(20_000) == 0
    assert gc.get_threshold() == usual
    assert num_collections(20_000) > 0


def test_it_is_as_usual_after_an_error(usual: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="of the caller"), rarely_collected(1_000_000):
        raise ValueError("of the caller")
    assert gc.get_threshold() == usual


def test_what_ran_may_have_its_own_idea() -> None:
    with rarely_collected(1_000_000):
        gc.set_threshold(123, 4, 5)
    assert gc.get_threshold() == (123, 4, 5)
