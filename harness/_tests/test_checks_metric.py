"""MetricRight: each sample of an evaluation is counted once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from harness._tests.histories import Story, run
from harness.checks import GUARANTEES
from harness.checks.base import Verdict
from harness.wire import Kind

Shards = Sequence[Sequence[int] | None]  # of each rank; None: it begins no pass

BATCH = 3


def verdict(story: Story, exit_code: int = 0) -> Verdict:
    return GUARANTEES["MetricRight"].check(story.history(exit_code), None)


def read(story: Story, rank: int, phase: str, **batch: Any) -> Story:
    """A batch, and the forward pass that follows."""
    story.tell(rank, Kind.PHASE, step=story.step + 1, phase="load_batch")
    story.tell(rank, Kind.BATCH, step=story.step + 1, phase="load_batch", **batch)
    return story.tell(rank, Kind.PHASE, step=story.step + (phase == "forward"), phase=phase)


def one_pass(
    story: Story,
    rank: int,
    ids: Sequence[int],
    *,
    phases: Sequence[str] = ("eval",),
    loader: int = 1,
    ends: bool = True,
    known: bool = True,
    **declared: Any,
) -> Story:
    """A pass of one rank over a loader, with ``phases`` after each batch."""
    what = {"epoch": 0, "length": 9, "distributed": False, "data": 1, "padding": 0, "samples": 10} | declared
    story.tell(rank, Kind.LOADER, phase="load_batch", loader=loader, **what)
    batches = [list(ids[i : i + BATCH]) for i in range(0, len(ids), BATCH)]
    for index, batch in enumerate(batches):
        read(story, rank, phases[0], loader=loader, epoch=0, index=index, ids=batch if known else None)
        for phase in phases[1:]:
            story.tell(rank, Kind.PHASE, step=story.step + 1, phase=phase)
    if ends:
        story.tell(rank, Kind.LOADER_END, phase="load_batch", loader=loader, epoch=0, batches=len(batches))
    return story


def evaluate(story: Story, shards: Shards, **declared: Any) -> Story:
    for rank, ids in enumerate(shards):
        if ids is not None:
            one_pass(story, rank, ids, **declared)
    return story


def job(shards: Shards, at: int = 4, **declared: Any) -> Story:
    """An evaluation of ten samples, if not said otherwise, after update ``at``."""
    story = run(ranks=len(shards)).start().updates(1, at)
    return evaluate(story, shards, **declared).updates(at + 1, 6).leave()


FOUR = [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]
PADDED = [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]]

LOST: dict[str, tuple[Shards, list[int], int]] = {
    "the last one of four shards in stride": ([[0, 4, 8], [1, 5], [2, 6], [3, 7]], [9], 1),
    "the first one of contiguous shards": ([[1, 2], [3, 4, 5], [6, 7, 8, 9]], [0], 0),
    "several, of several ranks": ([[0, 4], [1, 5], [2, 6], [3, 7]], [8, 9], 0),
    "all of a rank that does not take part": ([[0, 3, 6, 9], [1, 4, 7], None], [2, 5, 8], 1),
    "all but one shard": ([[0, 4, 8], None, None, None], [1, 2, 3, 5, 6, 7, 9], 0),
}


@pytest.mark.parametrize(("shards", "lost", "rank"), LOST.values(), ids=LOST)
def test_samples_that_are_left_out(shards: Shards, lost: list[int], rank: int) -> None:
    found = verdict(job(shards))
    assert (found.outcome, found.rank, found.step, found.seen["lost"]) == ("invalid", rank, 4, lost), found
    assert "of 10" in found.reason
    assert "Subset" in found.reason


def test_the_first_evaluation_that_is_wrong_is_named() -> None:
    story = run(ranks=2).start().updates(1, 2)
    evaluate(story, [[0, 2], [1, 3]], samples=4).updates(3, 4)
    evaluate(story, [[0, 2], [1]], samples=4).updates(5, 6)
    evaluate(story, [[0], [1]], samples=4).leave()
    found = verdict(story)
    assert (found.step, found.rank, found.file) == (4, 1, "rank-1/events-0.jsonl:28"), found


TWICE: dict[str, tuple[Shards, dict[str, int], list[int], int]] = {
    "shards that overlap": ([[0, 1, 2, 3, 4, 5], [5, 6, 7, 8, 9]], {}, [5], 1),
    "one rank has one twice": ([[0, 2, 4, 6, 8, 8], [1, 3, 5, 7, 9]], {}, [8], 0),
    "more than padding explains": ([[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1, 2]], {"padding": 2}, [0, 1, 2], 2),
    "padding where the sampler declares none": (PADDED, {}, [0, 1], 2),
}


@pytest.mark.parametrize(("shards", "declared", "twice", "rank"), TWICE.values(), ids=TWICE)
def test_samples_that_are_handed_out_twice(
    shards: Shards, declared: dict[str, int], twice: list[int], rank: int
) -> None:
    found = verdict(job(shards, **declared))
    assert (found.outcome, found.rank, found.step, found.seen["twice"]) == ("invalid", rank, 4, twice), found


HEALTHY: dict[str, Shards] = {
    "shards in stride": FOUR,
    "contiguous shards, shuffled": [[2, 1, 0, 3], [9, 8, 7], [4, 6, 5]],
    "rank 0 evaluates alone": [[*range(10)], None],
    "rank 0 evaluates alone, the others have empty loaders": [[*range(10)], [], []],
    "each rank evaluates everything": [[*range(10)], [*range(10)]],
}


@pytest.mark.parametrize("shards", HEALTHY.values(), ids=HEALTHY)
def test_each_sample_once(shards: Shards) -> None:
    found = verdict(job(shards))
    assert found.outcome == "valid", found
    assert "1 evaluations counted each of 10 samples once" in found.reason


def test_fewer_samples_than_ranks() -> None:
    assert verdict(job([[0], [1], [], []], samples=2)).outcome == "valid"
    assert verdict(job([[0], [1], None, None], samples=2)).outcome == "valid"
    assert verdict(job([[0], [1], [0], [1]], samples=2, padding=2)).outcome == "not-applicable"


def test_twice_in_a_row_and_before_the_first_update() -> None:
    story = run(ranks=4).start()
    evaluate(evaluate(evaluate(story, FOUR), FOUR), FOUR, loader=2, data=2).updates(1, 6).leave()
    assert "3 evaluations" in verdict(story).reason


def test_padding_is_no_alarm_and_no_proof() -> None:
    found = verdict(job(PADDED, padding=2))
    assert found.outcome == "not-applicable"
    assert "2 of 10" in found.reason


def trained_by_a_teacher() -> Story:
    """Each batch is seen by a teacher in evaluation mode, and then trained on; the last ones of the epoch are not."""
    story = run(ranks=2).start().updates(1, 3)
    for rank, ids in ((0, [0, 2, 4]), (1, [1, 3, 5])):
        one_pass(story, rank, ids, phases=["eval", "forward", "backward", "optimizer_step", "eval"])
    return story.leave()


def of_the_training_samples() -> Story:
    """Statistics are taken over a part of what is trained on."""
    story = run(ranks=2).start()
    for rank in (0, 1):
        one_pass(story, rank, [rank], phases=["forward"], loader=0, data=1)
        one_pass(story, rank, [rank + 2], loader=2, data=1)
    return story.leave()


def killed() -> Story:
    """Rank 1 dies before it evaluates; rank 0 has done its part."""
    story = run(ranks=2).start().updates(1, 4).kill(1)
    return one_pass(story, 0, [0, 2, 4]).cut_off()


def evaluated_after_training() -> Story:
    """Without a loader: the batch that was read last was trained on."""
    story = run(ranks=2).start()
    for rank in (0, 1):
        phases = ["forward", "backward", "optimizer_step", "eval"]
        one_pass(story, rank, [rank], phases=phases, loader=0, data=0, samples=50)
    return story.leave()


NOT_JUDGED: dict[str, tuple[Callable[[], Story], str]] = {
    "no loader is read": (lambda: run().start().updates(1, 6).leave(), "no evaluation is on record"),
    "only an evaluation without a loader": (evaluated_after_training, "no evaluation is on record"),
    "ids are unknown": (lambda: job(FOUR[:1], known=False), "1 evaluations are on record, and none"),
    "a sampler that makes a choice of its own": (lambda: job([[0, 1], [2]], samples=None), "and none"),
    "a data set for each rank": (
        lambda: one_pass(one_pass(run().start(), 0, [0, 1], samples=2), 1, [0, 1, 2], samples=3).leave(),
        "1 evaluations are on record, and none",
    ),
    "left early on purpose": (lambda: job([[0, 1], [2, 3]], ends=False), "about a part on purpose"),
    "a teacher": (trained_by_a_teacher, "no evaluation is on record"),
    "samples that are trained on": (of_the_training_samples, "1 evaluations are on record, and none"),
    "a rank that died before": (killed, "no evaluation of 1 came to its end on all ranks"),
}


@pytest.mark.parametrize("name", NOT_JUDGED)
def test_what_cannot_be_judged_is_no_alarm(name: str) -> None:
    make, said = NOT_JUDGED[name]
    found = verdict(make(), exit_code=int(name == "a rank that died before"))
    assert found.outcome == "not-applicable", found
    assert said in found.reason, found


def test_loaders_of_other_numbers_are_not_mistaken_for_lost_samples() -> None:
    """Rank 0 has made a loader more than the others: its evaluation has another number."""
    story = run(ranks=2).start().updates(1, 4)
    one_pass(one_pass(story, 0, [0, 2, 4, 6, 8], loader=2), 1, [1, 3, 5, 7, 9], loader=1).updates(5, 6).leave()
    assert verdict(story).outcome == "unknown"
    for event in story.events:
        if event["kind"] == Kind.LOADER:
            event["data"] = event["data"] | {"site": f"train.py:{30 + (event['data']['loader'] > 0)}"}
    assert verdict(story).outcome == "valid"  # their lines tell that they are the same


def test_an_evaluation_in_a_later_launch_counts() -> None:
    story = run(ranks=2).start().updates(1, 4)
    evaluate(story, [[0, 2], [1, 3]], samples=4).kill(1).cut_off().start(load=4)
    evaluate(story, [[0, 2], [1]], samples=4).updates(5, 6).leave()
    found = verdict(story)
    assert (found.outcome, found.restart, found.step) == ("invalid", 1, 4), found
