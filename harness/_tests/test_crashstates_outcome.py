"""Outcomes cross processes unchanged, and say who failed."""

from __future__ import annotations

import json

import pytest

from harness.crashstates.ranks.outcome import (
    Died,
    Hung,
    Loaded,
    Outcome,
    Raised,
    RankOutcome,
    Waiting,
    from_wire,
    to_wire,
)

RAISED = Raised("ValueError", "torn", "users.py:3")
KINDS: list[RankOutcome] = [Loaded("ab", "dict of 2"), RAISED, Hung(2.5, "line 3"), Died("SIGSEGV", "bye"), Waiting()]


@pytest.mark.parametrize("outcome", KINDS, ids=lambda outcome: type(outcome).__name__)
def test_comes_back_as_it_was(outcome: RankOutcome) -> None:
    back = from_wire(json.loads(json.dumps(to_wire(outcome))))
    assert back == outcome
    assert repr(back) == repr(outcome)


SAME = {
    "a summary in other words": (Loaded("ab", "x"), Loaded("ab", "y")),
    "an error with another address in its text": (RAISED, Raised("ValueError", "torn at 0x7f", "users.py:3")),
    "a hang at another place": (Hung(1.0, "a"), Hung(1.0, "b")),
    "a death with other last words": (Died("SIGSEGV", "a"), Died("SIGSEGV", "b")),
}
DIFFERENT = {
    "contents": (Loaded("ab"), Loaded("ac")),
    "kinds of error": (RAISED, Raised("KeyError", "torn", "users.py:3")),
    "places of an error": (RAISED, Raised("ValueError", "torn", "users.py:4")),
    "ways to die": (Died("SIGSEGV"), Died("SIGABRT")),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_the_same(one: RankOutcome, other: RankOutcome) -> None:
    assert Outcome((one,)) == Outcome((other,))
    assert hash(Outcome((one,))) == hash(Outcome((other,)))


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_not_the_same(one: RankOutcome, other: RankOutcome) -> None:
    assert Outcome((one,)) != Outcome((other,))


CAUSES: dict[str, tuple[tuple[RankOutcome, ...], RankOutcome]] = {
    "all returned: rank 0's": ((Loaded("a"), Loaded("b")), Loaded("a")),
    "one raised while another waited": ((Waiting(), RAISED), RAISED),
    "one returned before another raised": ((Loaded("a"), RAISED), RAISED),
    "all hang": ((Hung(1.0), Hung(1.0)), Hung(1.0)),
}


@pytest.mark.parametrize(("ranks", "cause"), CAUSES.values(), ids=CAUSES)
def test_the_cause(ranks: tuple[RankOutcome, ...], cause: RankOutcome) -> None:
    assert Outcome(ranks).cause == cause
    assert Outcome(ranks).has_returned == all(isinstance(rank, Loaded) for rank in ranks)


def test_words_name_the_ranks_where_they_differ() -> None:
    assert str(Outcome((Loaded("a", "3"), Loaded("a", "3")))) == "returned 3"
    text = str(Outcome((Waiting(), RAISED)))
    assert text == "rank 0 was still waiting when another rank failed; rank 1 raised ValueError at users.py:3: torn"
