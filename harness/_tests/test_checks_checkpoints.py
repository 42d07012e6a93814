"""OnlyCompleteLoads, NewestCompleteLoads, AcknowledgedSurvives, RetentionSafe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness._tests.histories import Story, run
from harness.checks import GUARANTEES
from harness.wire import Kind

NAMES = ("OnlyCompleteLoads", "NewestCompleteLoads", "AcknowledgedSurvives", "RetentionSafe")


def verdict(name: str, story: Story) -> Any:
    return GUARANTEES[name].check(story.history(), None)


def crashed(*, after_saves: tuple[int, ...] = (5, 10), ranks: int = 2) -> Story:
    """A job that saved and was then killed; what follows is its restart."""
    story = run(ranks=ranks, expect="recovers").start(with_store=True)
    done = 0
    for step in after_saves:
        story.updates(done + 1, step).save()
        done = step
    return story.updates(done + 1, done + 2).begin(1, done + 3).kill(1).cut_off()


def resumed(story: Story, step: int | None) -> Story:
    return story.start(load=step, with_store=True).updates((step or 0) + 1, 14).leave()


def half_written(story: Story, step: int, found: str = "incomplete") -> Story:
    story.kept[step] = found
    return story


def load_of_rank(story: Story, rank: int, step: int | None) -> Story:
    path = None if step is None else f"/run/checkpoints/step-{step}"
    manifest = None if step is None else f"manifest-{step}"
    data = {"path": path, "loaded_step": step, "manifest": manifest}
    return story.edit(Kind.LOAD, rank=rank, restart=1, data=data)


def forgotten_load() -> Story:
    """The restarted script never asks for a checkpoint."""
    return crashed().start().updates(1, 12).leave()


def rank0_alone_loads() -> Story:
    story = resumed(crashed(), 10).drop(Kind.LOAD, rank=1, restart=1)
    return story.drop(Kind.STATE, rank=1, restart=1)


def deleted_too_early() -> Story:
    """Retention takes the old one away before the new one is complete."""
    story = run().start(with_store=True).updates(1, 5).save().updates(6, 10)
    story.kept = {10: "incomplete"}
    return story.inventory("save").updates(11, 12).leave()


Tell = Callable[[], Story]
PLANTED: list[tuple[str, str, Tell, tuple[int | None, int]]] = [
    ("OnlyCompleteLoads", "a half-written one", lambda: resumed(half_written(crashed(), 12), 12), (0, 12)),
    (
        "OnlyCompleteLoads",
        "one with a flipped bit",
        lambda: resumed(half_written(crashed(), 10, "corrupt"), 10),
        (0, 10),
    ),
    ("OnlyCompleteLoads", "one that was not there", lambda: resumed(crashed(), 11), (0, 11)),
    (
        "OnlyCompleteLoads",
        "another manifest on one rank",
        lambda: resumed(crashed(), 10).edit(Kind.LOAD, rank=1, restart=1, data={"manifest": "stale"}),
        (1, 10),
    ),
    (
        "OnlyCompleteLoads",
        "a step that is not the name's",
        lambda: resumed(crashed(), 10).edit(Kind.LOAD, rank=1, restart=1, data={"loaded_step": 9}),
        (1, 9),
    ),
    ("NewestCompleteLoads", "an older one", lambda: resumed(crashed(), 5), (0, 10)),
    ("NewestCompleteLoads", "nothing, from zero", lambda: resumed(crashed(), None), (0, 10)),
    ("NewestCompleteLoads", "an older one on one rank", lambda: load_of_rank(resumed(crashed(), 10), 1, 5), (1, 5)),
    ("NewestCompleteLoads", "the script never asks", forgotten_load, (0, 10)),
    ("NewestCompleteLoads", "rank 0 alone loads", rank0_alone_loads, (1, 10)),
    ("AcknowledgedSurvives", "the save is gone", lambda: resumed(crashed(), 5), (0, 10)),
    ("AcknowledgedSurvives", "all saves are gone", lambda: resumed(crashed(), None), (0, 10)),
    (
        "AcknowledgedSurvives",
        "acknowledged on one rank alone",
        lambda: resumed(crashed().drop(Kind.SAVE_END, rank=0, step=10), 5),
        (0, 10),
    ),
    ("RetentionSafe", "deleted before the new one was there", deleted_too_early, (0, 10)),
    (
        "RetentionSafe",
        "what is left is half-written",
        lambda: half_written(half_written(crashed(), 5), 10).start(load=None, with_store=True),
        (0, 0),
    ),
]


@pytest.mark.parametrize(("name", "tell", "place"), [pytest.param(n, t, p, id=f"{n}: {i}") for n, i, t, p in PLANTED])
def test_planted(name: str, tell: Tell, place: tuple[int | None, int]) -> None:
    found = verdict(name, tell())
    assert (found.outcome, (found.rank, found.step)) == ("invalid", place), found


HEALTHY: list[tuple[str, Tell, set[str]]] = [
    ("the newest is loaded", lambda: resumed(crashed(), 10), set()),
    ("four ranks load the newest", lambda: resumed(crashed(ranks=4), 10), set()),
    ("a half-written newer one is passed over", lambda: resumed(half_written(crashed(), 12), 10), set()),
    ("a damaged newer one is passed over", lambda: resumed(half_written(crashed(), 12, "corrupt"), 10), set()),
    ("only the last is kept", lambda: resumed(kept_one(), 10), set()),
    (
        "a first launch finds an empty directory",
        lambda: run().start(with_store=True).updates(1, 5).save().leave(),
        {"OnlyCompleteLoads", "NewestCompleteLoads", "AcknowledgedSurvives"},
    ),
    (
        "a crash before the first save starts from zero",
        lambda: resumed(crashed(after_saves=()), None),
        set(NAMES),
    ),
    ("a job without a store", lambda: run().start().updates(1, 8).leave(), set(NAMES)),
    (
        "killed while loading, before any rank was told",
        lambda: crashed().start(load=10).updates(11, 12).leave(),
        set(),
    ),
]


def kept_one() -> Story:
    story = run().start(with_store=True).updates(1, 5).save(keep=1).updates(6, 10).save(keep=1)
    return story.updates(11, 12).begin(1, 13).kill(1).cut_off()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("tell", "nothing_to_judge"), [pytest.param(t, n, id=i) for i, t, n in HEALTHY])
def test_healthy(name: str, tell: Tell, nothing_to_judge: set[str]) -> None:
    found = verdict(name, tell())
    assert found.outcome == ("not-applicable" if name in nothing_to_judge else "valid"), found


@pytest.mark.parametrize("name", ["OnlyCompleteLoads", "NewestCompleteLoads", "RetentionSafe"])
def test_without_an_inventory_it_is_unknown(name: str) -> None:
    assert verdict(name, resumed(crashed(), 10).drop(Kind.INVENTORY)).outcome == "unknown"
