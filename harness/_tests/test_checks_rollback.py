"""RollbackExact, ReplayIdentical, EndsLikeBaseline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from harness._tests.histories import RAW, Story, baseline, digests, generators, run
from harness.checks import GUARANTEES
from harness.history import Baseline
from harness.wire import Kind

Tell = Callable[[], Story]


def verdict(name: str, story: Story, against: Baseline | None = None, exit_code: int = 0) -> Any:
    return GUARANTEES[name].check(story.history(exit_code), against)


def resumed(load: int = 5, first: int | None = None, *, ranks: int = 2, with_store: bool = True, **plan: Any) -> Story:
    """Killed in step 9, resumed from ``load``, done at 12."""
    story = run(ranks=ranks, **plan).start().updates(1, 8).begin(1, 9).kill(1).cut_off()
    story.start(load=load)
    if not with_store:
        story.drop(Kind.LOAD).drop(Kind.INVENTORY)
    return story.updates(load + 1 if first is None else first, 12).leave()


# -- RollbackExact -------------------------------------------------------------------------------------------------


def state(what: str, rank: int = 1) -> Story:
    return resumed().edit(Kind.STATE, rank=rank, restart=1, data={what: "fresh"})


def nothing_left_to_do() -> Story:
    """Killed after the last update: the restart loads the last checkpoint and leaves."""
    story = run().start().updates(1, 12).save().kill(1).cut_off()
    return story.start(load=12).drop(Kind.STATE, restart=1).leave()


def from_the_start() -> Story:
    return run().start().updates(1, 8).begin(1, 9).kill(1).cut_off().start().updates(1, 12).leave()


def other_initial_weights() -> Story:
    return from_the_start().edit(Kind.STATE, restart=1, rank=0, data={"params": "other-0"})


ROLLBACK: dict[str, tuple[Tell, tuple[int, int]]] = {
    "an update is left out": (lambda: resumed(5, first=7), (0, 7)),
    "the checkpoint's own update is done again": (lambda: resumed(5, first=5), (0, 5)),
    "one rank goes on with another update": (
        lambda: resumed(5, ranks=3).drop(Kind.UPDATE, rank=2, restart=1, step=6),
        (2, 7),
    ),
    "it goes on beyond what was ever done": (lambda: resumed(10), (0, 10)),
    "the parameters were not restored": (lambda: state("params"), (1, 5)),
    "the optimizer state was not restored": (lambda: state("optimizer"), (1, 5)),
    "an update is done twice": (
        lambda: run().start().updates(1, 4).updates(4, 6).leave(),
        (0, 4),
    ),
    "a restart from zero has other initial weights": (other_initial_weights, (0, 0)),
    "a restart with nothing left to do ends in another state": (
        lambda: nothing_left_to_do().edit(Kind.EXIT, restart=1, rank=1, data={"params": "other"}),
        (1, 12),
    ),
}


@pytest.mark.parametrize("name", ROLLBACK)
def test_a_rollback_that_is_not_exact(name: str) -> None:
    tell, place = ROLLBACK[name]
    found = verdict("RollbackExact", tell())
    expected = "unknown" if "beyond" in name else "invalid"
    assert (found.outcome, (found.rank, found.step)) == (expected, place if expected == "invalid" else (0, 0)), found
    assert not RAW.search(found.reason), found.reason


EXACT: dict[str, Tell] = {
    "resumed from the checkpoint": resumed,
    "resumed on four ranks": lambda: resumed(ranks=4),
    "resumed from the last update": lambda: resumed(8),
    "a script without a store, placed by its state": lambda: resumed(with_store=False),
    "started again from zero": from_the_start,
    "nothing was left to do": nothing_left_to_do,
    "killed twice": lambda: resumed_twice(),
}


def resumed_twice() -> Story:
    story = run().start().updates(1, 8).begin(1, 9).kill(1).cut_off()
    story.start(load=5).updates(6, 7).begin(0, 8).kill(0).cut_off()
    return story.start(load=5).updates(6, 12).leave()


@pytest.mark.parametrize("name", EXACT)
def test_an_exact_rollback(name: str) -> None:
    found = verdict("RollbackExact", EXACT[name]())
    assert found.outcome == "valid", found


def test_without_a_restart_there_is_no_rollback() -> None:
    assert verdict("RollbackExact", run().start().updates(1, 8).leave()).outcome == "not-applicable"


def test_without_the_state_it_is_unknown() -> None:
    assert verdict("RollbackExact", resumed().drop(Kind.STATE, restart=1, rank=1)).outcome == "unknown"


# -- ReplayIdentical -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("params", "x"),
        ("optimizer", "x"),
        ("buffers", "x"),
        ("torch_random", "x"),
        ("python_random", "x"),
        ("lr", [0.05]),
        ("ids", [3, 4]),
    ],
)
@pytest.mark.parametrize(("rank", "step"), [(0, 6), (1, 8)])
def test_a_replayed_update_differs(what: str, value: Any, rank: int, step: int) -> None:
    story = resumed().edit(Kind.UPDATE, rank=rank, step=step, restart=1, data={what: value})
    found = verdict("ReplayIdentical", story, baseline())
    assert (found.outcome, found.rank, found.step, found.restart) == ("invalid", rank, step, 1)
    assert what in found.reason
    assert found.file.startswith(f"rank-{rank}/events-1.jsonl:")


@pytest.mark.parametrize(
    ("what", "value"), [("torch_random", "of another rank"), ("lr", [1.0]), ("scaler", [[2.0, 0]]), ("ids", [3, 4])]
)
def test_of_all_ranks_whose_parameters_differ_the_one_whose_own_part_does_is_named(what: str, value: Any) -> None:
    story = resumed().edit(Kind.UPDATE, data={"scaler": [[1.0, 0]]})
    for rank in (0, 1):
        for step in (6, 7, 8):
            story.edit(Kind.UPDATE, rank=rank, step=step, restart=1, data={"params": "of another mean gradient"})
    found = verdict(
        "ReplayIdentical", story.edit(Kind.UPDATE, rank=1, step=6, restart=1, data={what: value}), baseline()
    )
    assert (found.outcome, found.rank, found.step) == ("invalid", 1, 6)
    assert (found.seen["what"], found.seen["replayed"], found.seen["ranks"]) == (what, value, [1])


@pytest.mark.parametrize(
    ("changed", "is_seeded", "is_said"),
    [
        ({"numpy_random": "x", "params": "x"}, False, True),
        ({"numpy_random": "x", "params": "x"}, True, False),
        ({"numpy_random": "x", "params": "x", "ids": [3, 4]}, False, False),
        ({"params": "x"}, False, False),
    ],
    ids=["never repeated", "compared", "other samples tell enough", "the same"],
)
def test_it_is_said_how_random_numbers_that_never_repeat_are_compared(
    changed: dict[str, Any], is_seeded: bool, is_said: bool
) -> None:
    steps = {step: {**digests(step)} | (generators(1, step) if is_seeded else {}) for step in range(1, 13)}
    story = resumed().edit(Kind.UPDATE, rank=1, step=6, restart=1, data=changed)
    found = verdict("ReplayIdentical", story, baseline(updates=dict.fromkeys((0, 1), steps)))
    assert (found.outcome, found.rank, found.step) == ("invalid", 1, 6)
    assert ("perhaps by other random numbers of numpy.random: they" in found.reason) is is_said


@pytest.mark.parametrize("is_seeded", [True, False])
def test_what_an_older_rank_side_recorded_of_all_generators_at_once_is_judged(is_seeded: bool) -> None:
    steps = {step: {**digests(step)} | ({"rng": "a"} if is_seeded else {}) for step in range(1, 13)}
    story = resumed().edit(Kind.UPDATE, data={"rng": "a"})
    for rank in (0, 1):
        story.edit(Kind.UPDATE, rank=rank, step=6, restart=1, data={"params": "x"} | ({"rng": "b"} if rank else {}))
    found = verdict("ReplayIdentical", story, baseline(updates=dict.fromkeys((0, 1), steps)))
    assert (found.outcome, found.rank, found.step) == ("invalid", 1 if is_seeded else 0, 6)


@pytest.mark.parametrize(
    ("changed", "is_seeded", "outcome"),
    [
        ({"torch_random": "x"}, True, "invalid"),
        ({"torch_random": "x"}, False, "valid"),
        ({"params": "x", "optimizer": "x", "buffers": "x"}, True, "valid"),
        ({"ids": [3, 4]}, True, "invalid"),
    ],
    ids=["random state", "random state that never repeats", "bytes", "samples"],
)
def test_where_bytes_may_differ_what_went_into_an_update_is_compared(
    changed: dict[str, Any], is_seeded: bool, outcome: str
) -> None:
    steps = {step: {**digests(step)} | (generators(1, step) if is_seeded else {}) for step in range(1, 13)}
    story = resumed(tolerance=1e-3).edit(Kind.UPDATE, rank=1, step=6, restart=1, data=changed)
    found = verdict("ReplayIdentical", story, baseline(updates=dict.fromkeys((0, 1), steps)))
    assert found.outcome == outcome
    assert outcome == "valid" or (found.rank, found.step) == (1, 6)


def test_a_second_replay_is_compared_with_the_first_time() -> None:
    story = resumed_twice()
    found = verdict("ReplayIdentical", story.edit(Kind.UPDATE, rank=1, step=8, restart=2, data={"params": "x"}))
    assert (found.outcome, found.rank, found.step, found.restart) == ("invalid", 1, 8, 2)


@pytest.mark.parametrize("tell", [resumed, resumed_twice, from_the_start])
def test_replays_are_identical(tell: Tell) -> None:
    assert verdict("ReplayIdentical", tell()).outcome == "valid"


def undisturbed() -> Story:
    return run().start().updates(1, 12).leave()


@pytest.mark.parametrize("tell", [lambda: resumed(8), undisturbed], ids=["resumed at the end", "no restart"])
def test_nothing_was_replayed(tell: Tell) -> None:
    assert verdict("ReplayIdentical", tell()).outcome == "not-applicable"


# -- EndsLikeBaseline ----------------------------------------------------------------------------------------------


def differs_from(step: int, rank: int, what: str) -> Story:
    story = resumed()
    for later in range(max(step, 6), 13):
        story.edit(Kind.UPDATE, rank=rank, step=later, restart=1, data={what: f"other-{later}"})
    return story.edit(Kind.EXIT, rank=rank, restart=1, data={what: "other-12"})


@pytest.mark.parametrize("what", ["params", "optimizer"])
@pytest.mark.parametrize(("rank", "step"), [(0, 12), (1, 7)])
def test_another_end(what: str, rank: int, step: int) -> None:
    found = verdict("EndsLikeBaseline", differs_from(step, rank, what), baseline())
    assert (found.outcome, found.rank, found.step) == ("invalid", rank, step)
    assert what in found.reason


INPUTS: dict[str, dict[str, Any]] = {
    "other random numbers of torch": {"torch_random": "of rank 0"},
    "other samples": {"ids": [7, 8]},
    "another learning rate ([0.2], not [0.1])": {"lr": [0.2]},
    "another learning rate ([0.2], not [0.1]) and other samples": {"lr": [0.2], "ids": [7, 8]},
}


@pytest.mark.parametrize("words", INPUTS)
def test_of_all_ranks_that_end_otherwise_the_one_is_named_that_had_other_inputs(words: str) -> None:
    story = differs_from(9, 0, "params")
    for later in range(9, 13):
        story.edit(Kind.UPDATE, rank=1, step=later, restart=1, data={"params": f"other-{later}", **INPUTS[words]})
    story.edit(Kind.EXIT, rank=1, restart=1, data={"params": "other-12"})
    found = verdict("EndsLikeBaseline", story, baseline())
    assert (found.outcome, found.rank, found.step) == ("invalid", 1, 9)
    assert found.reason.endswith(f"first differ after update 9, which rank 1 made with {words}")


@pytest.mark.parametrize(
    ("then", "now", "words"),
    [
        ({"scaler": "[[1024.0, 4]]"}, {"scaler": [[512.0, 4]]}, "another loss scale ([512.0], not [1024.0])"),
        ({"scaler": "[[1024.0, 4]]"}, {"scaler": [[1024.0, 0]]}, None),
        ({"scaler": "[[1024.0, 4]]"}, {"scaler": None}, None),
        ({"scaler": "None"}, {"scaler": [[1024.0, 4]]}, None),
        ({"lr": "[]"}, {"lr": [0.2]}, None),
        ({"lr": "[0.1]"}, {"lr": []}, None),
        ({"lr": "[0.1]"}, {"lr": [float("nan")]}, "another learning rate ([nan], not [0.1])"),
    ],
)
def test_only_what_was_another_input_is_told(then: dict[str, str], now: dict[str, Any], words: str | None) -> None:
    known = baseline()
    updates = {rank: {step: {**told, **then} for step, told in steps.items()} for rank, steps in known.updates.items()}
    story = differs_from(9, 0, "params")
    for step in range(9, 13):
        story.edit(Kind.UPDATE, rank=0, step=step, restart=1, data=now)
    found = verdict("EndsLikeBaseline", story, replace(known, updates=updates))
    assert found.reason.partition("made with ")[2] == (words or "")


def test_the_rank_that_differed_first_is_named_where_the_others_followed() -> None:
    story = differs_from(9, 0, "params")
    for step in range(8, 13):
        story.edit(Kind.UPDATE, rank=1, step=step, restart=1, data={"optimizer": f"other-{step}"})
    story.edit(Kind.EXIT, rank=1, restart=1, data={"optimizer": "other-12", "params": "other-12"})
    found = verdict("EndsLikeBaseline", story, baseline())
    assert (found.rank, found.step) == (1, 8)
    assert "the final optimizer of rank 1 are not" in found.reason


def test_all_ranks_are_said_to_differ_where_they_do_at_once() -> None:
    story = differs_from(9, 0, "params")
    for step in range(9, 13):
        story.edit(Kind.UPDATE, rank=1, step=step, restart=1, data={"params": f"other-{step}"})
    found = verdict("EndsLikeBaseline", story.edit(Kind.EXIT, rank=1, restart=1, data={"params": "o"}), baseline())
    assert (found.rank, found.step) == (0, 9)
    assert "the final params of all ranks are not" in found.reason


def test_what_a_restart_made_again_is_not_where_the_end_began_to_differ() -> None:
    story = differs_from(9, 0, "params")
    step = max(e["step"] for e in story.events if e["kind"] == Kind.UPDATE and e["restart"] == 0)
    story.edit(Kind.UPDATE, rank=1, step=step, restart=0, data={"params": "spoiled, and lost in the crash"})
    found = verdict("EndsLikeBaseline", story, baseline())
    assert (found.outcome, found.rank, found.step, found.restart) == ("invalid", 0, 9, 1)


@pytest.mark.parametrize("tell", [resumed, undisturbed])
def test_the_same_end(tell: Tell) -> None:
    assert verdict("EndsLikeBaseline", tell(), baseline()).outcome == "valid"


def idle_at_the_end(step: int = 12, **changed: str) -> Story:
    """Nothing was left to do after the restart; before it the updates of rank 1 from ``step`` on had ``changed``."""
    story = nothing_left_to_do()
    for rank in (0, 1):
        story.edit(Kind.EXIT, rank=rank, restart=1, data={"params": None, "optimizer": None})
    for later in range(step, 13):
        story.edit(Kind.UPDATE, rank=1, step=later, restart=0, data=changed)
    return story


def test_a_last_launch_that_had_nothing_to_do_ends_with_what_was_done_before() -> None:
    found = verdict("EndsLikeBaseline", idle_at_the_end(), baseline())
    assert (found.outcome, "update 12 of an earlier one equals" in found.reason) == ("valid", True), found
    found = verdict("EndsLikeBaseline", idle_at_the_end(7, optimizer="spoiled"), baseline())
    assert (found.outcome, found.rank, found.step, found.restart) == ("invalid", 1, 7, 0), found
    assert verdict("EndsLikeBaseline", idle_at_the_end(), None).outcome == "unknown"
    assert verdict("EndsLikeBaseline", idle_at_the_end(), baseline(repeatable=False)).outcome == "unknown"


def test_buffers_of_each_rank_may_differ() -> None:
    story = resumed().edit(Kind.EXIT, rank=1, restart=1, data={"buffers": "local statistics"})
    assert verdict("EndsLikeBaseline", story, baseline()).outcome == "valid"


UNKNOWN: dict[str, tuple[Baseline | None, str]] = {
    "no baseline": (None, "no fault-free run"),
    "the script does not repeat itself": (baseline(repeatable=False, reason="two runs differ"), "two runs differ"),
    "the baseline failed": (baseline(final={}, reason="the fault-free run failed"), "the fault-free run failed"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_no_end_to_compare_with(name: str) -> None:
    against, words = UNKNOWN[name]
    found = verdict("EndsLikeBaseline", resumed(), against)
    assert found.outcome == "unknown"
    assert words in found.reason


FINAL = (("0.weight", 4, 2.0, 4.0), ("0.bias", 1, 0.0, 0.0))
NEARBY: dict[str, tuple[list[tuple[str, int, float, float]], str]] = {
    "equal": ([*FINAL], "valid"),
    "within": ([("0.weight", 4, 2.0 + 4e-6, 4.0 - 2e-6), FINAL[1]], "valid"),
    "the norm is too far": ([("0.weight", 4, 2.0, 4.00001), FINAL[1]], "invalid"),
    "the sum is too far": ([("0.weight", 4, 2.0001, 4.0), FINAL[1]], "invalid"),
    "what was zero is not": ([FINAL[0], ("0.bias", 1, 1e-3, 1e-3)], "invalid"),
    "not a number": ([("0.weight", 4, float("nan"), float("nan")), FINAL[1]], "invalid"),
    "a parameter is missing": ([FINAL[0]], "invalid"),
    "another shape": ([("0.weight", 5, 2.0, 4.0), FINAL[1]], "invalid"),
}


@pytest.mark.parametrize("name", NEARBY)
def test_a_stated_tolerance_is_what_the_end_is_judged_by(name: str) -> None:
    ended, outcome = NEARBY[name]
    story = run(tolerance=1e-6).start().updates(1, 12).leave()
    story.edit(Kind.EXIT, rank=0, data={"params": "other bytes", "magnitudes": [*FINAL]})
    story.edit(Kind.EXIT, rank=1, data={"params": "other bytes", "magnitudes": ended})
    found = verdict("EndsLikeBaseline", story, baseline(magnitudes=FINAL, repeatable=False))
    assert (found.outcome, found.rank) == (outcome, 1 if outcome == "invalid" else None), found.reason


def sharded(**plan: Any) -> Story:
    """Each rank holds a part of the state of its own."""
    story = run(**plan).start().updates(1, 12).leave()
    for step in range(1, 13):
        story.edit(Kind.UPDATE, rank=1, step=step, data={"params": f"part-{step}", "sharded": True})
    return story.edit(Kind.EXIT, rank=1, data={"params": "part-12", "magnitudes": [("0.weight", 2, 9.0, 9.0)]})


@pytest.mark.parametrize(("part", "outcome"), [("part-12", "valid"), ("part-11", "invalid")])
def test_of_a_sharded_state_each_rank_ends_with_its_own_part(part: str, outcome: str) -> None:
    against = baseline(finals={0: digests(12), 1: digests(12) | {"params": part}})
    found = verdict("EndsLikeBaseline", sharded(), against)
    assert found.outcome == outcome
    assert outcome == "valid" or found.rank == 1


def test_of_a_sharded_state_the_first_rank_alone_is_compared_within_a_tolerance() -> None:
    story = sharded(tolerance=1e-6).edit(Kind.EXIT, rank=0, data={"magnitudes": [*FINAL]})
    assert verdict("EndsLikeBaseline", story, baseline(magnitudes=FINAL)).outcome == "valid"


def test_a_tolerance_with_nothing_to_compare_with_is_unknown() -> None:
    story = run(tolerance=1e-6).start().updates(1, 12).leave()
    assert verdict("EndsLikeBaseline", story, baseline()).outcome == "unknown"


def test_a_tolerance_spares_the_bytes_of_replayed_updates_and_nothing_else() -> None:
    story = resumed(tolerance=1e-6)
    assert (
        verdict("ReplayIdentical", story.edit(Kind.UPDATE, rank=0, step=6, restart=1, data={"params": "x"})).outcome
        == "valid"
    )
    found = verdict("ReplayIdentical", story.edit(Kind.UPDATE, rank=1, step=7, restart=1, data={"ids": [99]}))
    assert (found.outcome, found.rank, found.step) == ("invalid", 1, 7)


def test_a_run_that_failed_has_no_end() -> None:
    story = run().start().updates(1, 8).begin(1, 9).kill(1).cut_off()
    assert verdict("EndsLikeBaseline", story, baseline(), exit_code=1).outcome == "not-applicable"


def test_a_rank_without_a_last_word_is_unknown() -> None:
    assert verdict("EndsLikeBaseline", resumed().drop(Kind.EXIT, rank=1, restart=1), baseline()).outcome == "unknown"
