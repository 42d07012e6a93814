"""The digest of the random generators: each number that is drawn shows, in each way of reading the state."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch

from harness.rank import generators
from harness.rank.generators import rng_digests

numpy_random: Any = numpy.random  # its types leave some functions out

DRAWS: dict[str, Callable[[], object]] = {
    "a number of Python's": random.random,
    "a pair of normal numbers of Python's, one of them kept": lambda: random.gauss(0.0, 1.0),
    "a number of torch's": lambda: torch.rand(1),
    "a normal number of torch's": lambda: torch.randn(1),
    "a number of numpy's": numpy.random.rand,
    "a pair of normal numbers of numpy's, one of them kept": numpy.random.randn,
    "all words of numpy's": lambda: numpy.random.rand(400),
}
SEEDS: dict[str, Callable[[], object]] = {
    "Python's seed": lambda: random.seed(7),
    "torch's seed": lambda: torch.manual_seed(7),
    "numpy's seed": lambda: numpy.random.seed(7),
}


def read_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an interpreter, or with a numpy, whose generators keep their state elsewhere."""
    monkeypatch.setattr(generators, "_python", lambda: (None, random.getstate.__self__))  # type: ignore[attr-defined]
    monkeypatch.setattr(generators, "_keeps_inside", lambda module: False)


@pytest.fixture(params=["in place", "in full"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.param == "in full":
        read_in_full(monkeypatch)
    generators._numpy.cache_clear()
    yield
    generators._numpy.cache_clear()


def seed() -> None:
    random.seed(1)
    torch.manual_seed(1)
    numpy.random.seed(1)


@pytest.mark.parametrize("draw", [*DRAWS.values(), *SEEDS.values()], ids=[*DRAWS, *SEEDS])
def test_a_draw_shows_and_a_repetition_gives_the_same(draw: Callable[[], object]) -> None:
    def digests() -> list[object]:
        seed()
        found = [rng_digests()]
        draw()
        return [*found, rng_digests(), rng_digests()]

    first, drawn, again = digests()
    assert first != drawn == again
    assert digests() == [first, drawn, again]


@pytest.mark.parametrize("draw", [*DRAWS.values()], ids=[*DRAWS])
def test_each_of_many_draws_shows(draw: Callable[[], object]) -> None:
    seed()
    assert len({(draw(), rng_digests())[1] for _ in range(9)}) == 9


def test_a_state_that_is_put_back_has_its_digest_back() -> None:
    seed()
    numpy.random.randn()
    random.gauss(0.0, 1.0)
    states: tuple[Any, ...] = random.getstate(), torch.get_rng_state(), numpy.random.get_state()
    before = rng_digests()
    for draw in DRAWS.values():
        draw()
    assert rng_digests() != before
    random.setstate(states[0])
    torch.set_rng_state(states[1])
    numpy.random.set_state(states[2])
    assert rng_digests() == before


@pytest.mark.filterwarnings("ignore:get_state and legacy")
def test_another_bit_generator_of_numpys_is_read_too() -> None:
    stock = numpy_random.get_bit_generator()
    try:
        seed()
        seen = {rng_digests()}
        for bits in (numpy.random.PCG64(1), numpy.random.MT19937(2), stock):
            numpy_random.set_bit_generator(bits)
            seen.add(rng_digests())
            numpy.random.rand()
            seen.add(rng_digests())
    finally:
        numpy_random.set_bit_generator(stock)
    assert len(seen) == 6  # the stock one, once as it was
    assert len(seen | {rng_digests()}) == 6
