"""LoadersAgree and SamplesOnce."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness._tests.histories import EPOCH, Story, baseline, run, sample_ids
from harness.checks import GUARANTEES
from harness.history import Baseline
from harness.wire import Kind


def verdict(name: str, story: Story, against: Baseline | None = None, exit_code: int = 0) -> Any:
    return GUARANTEES[name].check(story.history(exit_code), against)


def loader(
    story: Story, lengths: list[int], *, number: int = 0, epoch: int = 0, declared: list[int] | None = None
) -> Story:
    """One epoch in which rank r is handed ``lengths[r]`` batches and then its end."""
    for rank, length in enumerate(lengths):
        said = (declared or lengths)[rank]
        story.tell(rank, Kind.LOADER, phase="load_batch", loader=number, epoch=epoch, length=said)
        for index in range(length):
            story.tell(rank, Kind.BATCH, phase="load_batch", loader=number, epoch=epoch, index=index, ids=[index])
            if number == 0:
                story.step = epoch * 10 + index + 1
                story.update(rank, story.step)
        story.tell(rank, Kind.LOADER_END, phase="load_batch", loader=number, epoch=epoch, batches=length)
    return story


# -- LoadersAgree --------------------------------------------------------------------------------------------------

UNEQUAL = {
    "the last rank of four gets a short part": ([3, 3, 3, 1], 3),
    "one rank of three gets one more": ([3, 4, 3], 1),
    "of two ranks the one that runs out first": ([5, 7], 0),
    "a loader that hands out nothing": ([3, 0], 1),
}


@pytest.mark.parametrize("name", UNEQUAL)
@pytest.mark.parametrize("epoch", [0, 2])
def test_unequal_lengths(name: str, epoch: int) -> None:
    lengths, rank = UNEQUAL[name]
    story = run(ranks=len(lengths)).start()
    for earlier in range(epoch):
        loader(story, [3] * len(lengths), epoch=earlier)
    found = verdict("LoadersAgree", loader(story, lengths, epoch=epoch))
    assert (found.outcome, found.rank, found.seen["epoch"]) == ("invalid", rank, epoch), found
    assert [int(words.split()[0]) for words in found.seen["batches"].values()] == lengths


def test_a_shorter_loader_whose_peer_still_waits_for_the_next_batch() -> None:
    story = run().start().updates(1, 5).begin(0, 6)
    story.tell(1, Kind.LOADER_END, step=6, phase="load_batch", loader=0, epoch=0, batches=5).cut_off()
    found = verdict("LoadersAgree", story, exit_code=1)
    assert (found.outcome, found.rank, found.step) == ("invalid", 1, 6)


def test_a_run_that_broke_off_is_judged_by_what_the_loaders_say_of_themselves() -> None:
    story = run(ranks=3).start()
    for rank, length in enumerate([8, 8, 7]):
        story.tell(rank, Kind.LOADER, phase="load_batch", loader=0, epoch=0, length=length)
    found = verdict("LoadersAgree", story.cut_off(), exit_code=1)
    assert (found.outcome, found.rank) == ("invalid", 2)


def shifted(ranks: int, rank: int, first: int, *, is_used: bool = False) -> Story:
    """From update ``first`` on one rank is a batch ahead: it passed one over, or used two for that update."""
    story = run(ranks=ranks).start()
    for step in range(1, EPOCH):
        for r in range(ranks):
            story.step = step
            if step == 1:
                story.tell(r, Kind.LOADER, phase="load_batch", loader=0, epoch=0, length=EPOCH)
            is_ahead = r == rank and step >= first
            indexes = [step - 1, step] if r == rank and step == first else [step - 1 + is_ahead]
            for index in indexes:
                story.tell(r, Kind.BATCH, phase="load_batch", loader=0, epoch=0, index=index, ids=[10 * index + r])
            used = indexes if is_used else indexes[-1:]
            story.update(r, step, ids=[10 * index + r for index in used], batches=len(used))
    return story.leave()


@pytest.mark.parametrize("is_used", [False, True], ids=["it passed one over", "its update has two"])
@pytest.mark.parametrize("first", [1, 3])
@pytest.mark.parametrize(("ranks", "rank"), [(2, 1), (2, 0), (3, 1)])
def test_a_rank_that_is_a_batch_ahead(ranks: int, rank: int, first: int, is_used: bool) -> None:
    found = verdict("LoadersAgree", shifted(ranks, rank, first, is_used=is_used))
    assert (found.outcome, found.rank, found.step) == ("invalid", rank, first), found
    assert found.seen["batch"][f"rank {rank}"] == first


def test_of_two_ranks_that_both_go_on_unusually_nobody_is_named() -> None:
    story = shifted(2, 1, 3)
    for event in story.events:
        if event["kind"] == Kind.BATCH and event["rank"] == 0 and event["step"] >= 3:
            event["data"]["index"] += 2
    found = verdict("LoadersAgree", story)
    assert (found.outcome, found.rank, found.step) == ("invalid", None, 3), found


def test_without_ids_nobody_says_which_batch_an_update_used() -> None:
    story = shifted(2, 1, 3).edit(Kind.BATCH, data={"ids": None}).edit(Kind.UPDATE, data={"ids": None})
    assert verdict("LoadersAgree", story).outcome == "valid"


def skipped_together() -> Story:
    """Both ranks pass the third batch over."""
    story = shifted(2, 1, 3)
    for event in [e for e in story.events if e["kind"] in (Kind.BATCH, Kind.UPDATE)]:
        is_batch, step = event["kind"] == Kind.BATCH, event["step"]
        if event["rank"] == 0 and step >= 3:
            event["data"] |= {"index": step} if is_batch else {}
            event["data"]["ids"] = [10 * step]
    return story


def reads_ahead_on_one_rank() -> Story:
    """Rank 1 asks for each batch one update earlier."""
    story = run().start()
    for r, ahead in ((0, 0), (1, 1)):
        story.tell(r, Kind.LOADER, phase="load_batch", loader=0, epoch=0, length=4)
        for step in range(1, 5):
            for index in range(0 if step == 1 else step - 1 + ahead, min(step + ahead, 4)):
                story.tell(r, Kind.BATCH, step=step, phase="load_batch", loader=0, epoch=0, index=index, ids=[index])
            story.step = step
            story.update(r, step, ids=[step - 1])
    return story.leave()


def uneven_evaluation() -> Story:
    story = loader(run().start(), [4, 4])
    return loader(story, [3, 2], number=1)


def evaluation_on_rank_0_alone() -> Story:
    story = loader(run().start(), [4, 4])
    story.tell(0, Kind.LOADER, phase="load_batch", loader=1, epoch=0, length=9)
    return story.tell(0, Kind.LOADER_END, phase="load_batch", loader=1, epoch=0, batches=9).leave()


def left_at_the_shortest() -> Story:
    """All ranks agree to stop at the shortest part: nobody sees the end of a loader."""
    story = loader(run().start(), [4, 4], declared=[4, 6])
    return story.drop(Kind.LOADER_END)


HEALTHY: dict[str, Callable[[], Story]] = {
    "equal in every epoch": lambda: run(ranks=4).start().updates(1, 2 * EPOCH).leave(),
    "two passes of different length, each equal": lambda: loader(loader(run().start(), [4, 4]), [2, 2], epoch=1),
    "all pass the same batch over": skipped_together,
    "one rank reads a batch ahead": reads_ahead_on_one_rank,
    "evaluation is uneven": uneven_evaluation,
    "rank 0 alone evaluates": evaluation_on_rank_0_alone,
    "all stop at the shortest part": left_at_the_shortest,
    "a killed rank was handed fewer": lambda: run().start().updates(1, 4).begin(0, 5).kill(1).cut_off(),
    "a resume in the middle of an epoch": lambda: run().start(load=4).updates(5, 12).leave(),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_loaders(name: str) -> None:
    found = verdict("LoadersAgree", HEALTHY[name](), exit_code=int("killed" in name))
    assert found.outcome == "valid", found


# -- SamplesOnce ---------------------------------------------------------------------------------------------------


def ids(story: Story, rank: int, step: int, used: list[int], restart: int = 0) -> Story:
    return story.edit(Kind.UPDATE, rank=rank, step=step, restart=restart, data={"ids": used})


def resumed(first: int, *, load: int) -> Story:
    """Killed in step 9, resumed from ``load``, going on with update ``first``."""
    story = run().start().updates(1, 8).begin(1, 9).kill(1).cut_off()
    return story.start(load=load).updates(first, 12).leave()


def batches_of_the_first_epoch_again() -> Story:
    """The sampler's epoch was not restored: epoch 1 goes on with the order of epoch 0."""
    story = resumed(7, load=6)
    for step in range(7, 13):
        for rank in range(2):
            ids(story, rank, step, [100 + i for i in sample_ids(step, rank, 2)], restart=1)
    return story


PLANTED: dict[str, tuple[Callable[[], Story], tuple[int, int]]] = {
    "the position in the epoch was not restored": (
        lambda: ids(resumed(9, load=8), 1, 9, sample_ids(8, 1, 2), restart=1),
        (1, 9),
    ),
    "both ranks read the same": (
        lambda: ids(run().start().updates(1, 12).leave(), 1, 3, sample_ids(3, 0, 2)),
        (1, 3),
    ),
    "a sample is lost": (lambda: ids(run().start().updates(1, 12).leave(), 0, 5, sample_ids(5, 0, 2)[:1]), (0, 5)),
    "the epoch's order was not restored": (batches_of_the_first_epoch_again, (0, 7)),
}


@pytest.mark.parametrize("name", PLANTED)
def test_samples_unlike_the_fault_free_run(name: str) -> None:
    tell, place = PLANTED[name]
    found = verdict("SamplesOnce", tell(), baseline())
    assert (found.outcome, (found.rank, found.step)) == ("invalid", place), found


@pytest.mark.parametrize("name", ["the position in the epoch was not restored", "both ranks read the same"])
def test_a_sample_twice_shows_without_a_fault_free_run(name: str) -> None:
    tell, place = PLANTED[name]
    found = verdict("SamplesOnce", tell(), None)
    assert (found.outcome, (found.rank, found.step)) == ("invalid", place), found


def test_the_whole_run_is_added_up() -> None:
    found = verdict("SamplesOnce", PLANTED["the position in the epoch was not restored"][0](), baseline())
    assert found.seen["lost"] == sample_ids(9, 1, 2)
    assert found.seen["used too often"] == sample_ids(8, 1, 2)


def test_a_baseline_with_the_same_bug_does_not_hide_it() -> None:
    story = PLANTED["both ranks read the same"][0]()
    same = baseline()
    wrong = {rank: dict(steps) for rank, steps in same.sample_ids.items()}
    wrong[1][3] = sample_ids(3, 0, 2)
    assert verdict("SamplesOnce", story, baseline(sample_ids=wrong)).outcome == "invalid"


def test_an_update_that_never_came() -> None:
    story = run().start().updates(1, 11).leave()
    found = verdict("SamplesOnce", story, baseline())
    assert (found.outcome, found.step) == ("invalid", 12)


def padded() -> Story:
    """11 samples on 3 ranks, 4 batches of 1: the sampler repeats the first one."""
    story = run(ranks=3).start().updates(1, 4).leave()
    for step in range(1, 5):
        for rank in range(3):
            ids(story, rank, step, [((step - 1) * 3 + rank) % 11])
    return story


def counted_anew() -> Story:
    """A sampler that has no epoch: after the restart the recorder counts passes from 0 again."""
    return resumed(7, load=6).edit(Kind.UPDATE, restart=1, data={"epoch": 0})


def agreed_skip() -> Story:
    """All ranks leave update 7 out; what they read for it is on record with the next one, over the end of an epoch."""
    story = run().start().updates(1, 5)
    for rank in range(2):
        story.begin(rank, 6)
    for rank in range(2):
        used = sample_ids(6, rank, 2) + sample_ids(7, rank, 2)
        story.tell(rank, Kind.LOADER, phase="load_batch", loader=0, epoch=1, length=EPOCH)
        story.tell(rank, Kind.BATCH, phase="load_batch", loader=0, epoch=1, index=0, ids=sample_ids(7, rank, 2))
        story.update(rank, 6, ids=used, batches=2, epoch=1)
    return story.updates(8, 12)


HEALTHY_SAMPLES: dict[str, Callable[[], tuple[Story, Baseline | None]]] = {
    "each sample once in each epoch": lambda: (run().start().updates(1, 12).leave(), baseline()),
    "replayed updates count once": lambda: (resumed(5, load=4), baseline()),
    "replayed updates count once, without a baseline": lambda: (resumed(5, load=4), None),
    "padding up to world size - 1 in the last batch": lambda: (padded(), None),
    "an update of two batches over the end of an epoch": lambda: (agreed_skip(), None),
    "passes counted anew after a restart": lambda: (counted_anew(), baseline()),
    "a job that was stopped in the middle": lambda: (run().start().updates(1, 4).begin(1, 5).kill(1), baseline()),
    "a script that does not repeat itself": lambda: (
        ids(run().start().updates(1, 12).leave(), 0, 3, [900, 901]),
        baseline(repeatable=False),
    ),
}


@pytest.mark.parametrize("name", HEALTHY_SAMPLES)
def test_healthy_samples(name: str) -> None:
    story, against = HEALTHY_SAMPLES[name]()
    found = verdict("SamplesOnce", story, against, exit_code=int("stopped" in name))
    assert found.outcome == "valid", found


def test_more_padding_than_there_are_other_ranks() -> None:
    story = padded()
    ids(story, 1, 4, [1])
    ids(story, 0, 4, [2])
    assert verdict("SamplesOnce", story, None).outcome == "invalid"


def test_unknown_ids() -> None:
    story = run().start().updates(1, 12).leave()
    assert verdict("SamplesOnce", story.edit(Kind.UPDATE, step=3, data={"ids": None})).outcome == "unknown"
    assert verdict("SamplesOnce", story.edit(Kind.UPDATE, data={"ids": None})).outcome == "not-applicable"


def with_a_loader_of_rank_0_alone(**made_at: str) -> Story:
    """Rank 0 makes a loader of its own first, of ten batches, so that its others have higher numbers."""
    story = run().start().updates(1, 12).leave()
    for event in story.events:
        if event["rank"] == 0 and "loader" in event["data"]:
            event["data"] = event["data"] | {"loader": 1}
        if event["kind"] == Kind.LOADER:
            event["data"] = event["data"] | made_at
    first = next(n for n, e in enumerate(story.events) if e["rank"] == 0 and e["kind"] == Kind.LOADER)
    own = {"rank": 0, "restart": 0, "step": 0, "phase": "load_batch"}
    begun = {"loader": 0, "epoch": 0, "length": 10, "site": "train.py:9"}
    ended = {"loader": 0, "epoch": 0, "batches": 10}
    story.events.insert(first, {**own, "kind": Kind.LOADER_END, "data": ended})
    story.events.insert(first, {**own, "kind": Kind.LOADER, "data": begun})
    return story


def test_a_loader_that_one_rank_alone_makes_shifts_no_others() -> None:
    history = with_a_loader_of_rank_0_alone(site="train.py:30").history()
    for name in ("LoadersAgree", "SamplesOnce"):
        found = GUARANTEES[name].check(history, baseline())
        assert found.outcome == "valid", found


def test_a_short_loader_is_found_beside_one_that_one_rank_alone_makes() -> None:
    story = with_a_loader_of_rank_0_alone(site="train.py:30")
    story.edit(Kind.LOADER_END, rank=1, data={"batches": 5})
    found = GUARANTEES["LoadersAgree"].check(story.history(), None)
    assert (found.outcome, found.rank) == ("invalid", 1), found
