"""A job with two stores: what is saved in one is neither expected of the other nor a comfort for its loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from harness._tests.histories import Story, run
from harness.checkpoint.judge import Entry
from harness.checks import GUARANTEES
from harness.wire import Kind

MODEL, OPTIMIZER = "/run/model", "/run/optimizer"


def saved(story: Story, root: str, step: int) -> Story:
    story.tell(0, Kind.SAVE_START, phase="save", path=f"{root}/step-{step}")
    story.tell(0, Kind.SAVE_END, phase="save", path=f"{root}/step-{step}", manifest=f"{root}-{step}")
    return inventory(story, root, step, why="save")


def inventory(story: Story, root: str, step: int | None, why: str = "load") -> Story:
    entries = [] if step is None else [entry(step, "complete")]
    return story.tell(0, Kind.INVENTORY, phase=why, root=root, entries=entries, why=why)


def entry(step: int, verdict: str) -> dict[str, object]:
    return {"name": f"step-{step}", "step": step, "verdict": verdict, "reason": "told", "manifest": None}


def loaded(story: Story, root: str, step: int | None) -> Story:
    path = None if step is None else f"{root}/step-{step}"
    return story.tell(0, Kind.LOAD, phase="load", path=path, loaded_step=step, manifest=None, candidates=[])


def killed() -> Story:
    """The model is saved in steps 4 and 8, the optimizer, which is large, in step 4 alone."""
    story = run(expect="recovers").start().updates(1, 4)
    saved(saved(story, MODEL, 4), OPTIMIZER, 4).updates(5, 8)
    return saved(story, MODEL, 8).updates(9, 9).begin(1, 10).kill(1).cut_off()


def restarted(model: int | None = 8, optimizer: int | None = 4) -> Story:
    story = killed()
    story.restart, story.alive = 1, {0, 1}
    for root, step in ((MODEL, model), (OPTIMIZER, optimizer)):
        loaded(inventory(story, root, step), root, step)
    return story.updates(9, 12).leave()


STORIES: dict[str, tuple[Callable[[], Story], dict[str, str], str]] = {
    "each is as it was saved": (restarted, {"RetentionSafe": "valid", "AcknowledgedSurvives": "valid"}, ""),
    "the first has lost its own": (
        lambda: restarted(model=None),
        {"RetentionSafe": "invalid", "AcknowledgedSurvives": "invalid"},
        MODEL,
    ),
    "the second has lost its own": (
        lambda: restarted(optimizer=None),
        {"RetentionSafe": "invalid", "AcknowledgedSurvives": "invalid"},
        OPTIMIZER,
    ),
    "the first has lost its newest": (
        lambda: restarted(model=4),
        {"RetentionSafe": "valid", "AcknowledgedSurvives": "invalid"},
        "",
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_each_store_is_judged_by_itself(name: str) -> None:
    tell, outcomes, root = STORIES[name]
    found = {guarantee: GUARANTEES[guarantee].check(tell().history(), None) for guarantee in outcomes}
    assert {guarantee: verdict.outcome for guarantee, verdict in found.items()} == outcomes, found
    assert root in found["RetentionSafe"].reason


@pytest.mark.parametrize(("verdict", "outcome"), [("complete", "valid"), ("incomplete", "invalid")])
def test_of_a_store_that_nobody_has_looked_into_since_what_is_left_counts(verdict: str, outcome: str) -> None:
    story = killed()
    last = max(n for n, event in enumerate(story.events) if event["data"].get("root") == OPTIMIZER)
    del story.events[last]
    left = Entry(name="step-4", step=4, verdict=verdict, reason="told", manifest=None)  # type: ignore[arg-type]
    found = GUARANTEES["RetentionSafe"].check(replace(story.history(), remains={OPTIMIZER: [left]}), None)
    assert found.outcome == outcome, found
    assert GUARANTEES["RetentionSafe"].check(story.history(), None).outcome == "unknown"
