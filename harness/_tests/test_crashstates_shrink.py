"""A failing state becomes the smallest one that fails in the same way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness._tests.crash_recordings import Script
from harness.crashstates.explore import Explorer, State
from harness.crashstates.models import MODEL_NAMES, ModelName
from harness.crashstates.operation import Operation
from harness.crashstates.shrink import losses, lost_operations, shrink
from harness.crashstates.tree import File

DATA = b"x" * 9000


def save(script: Script) -> None:
    """Data and marker in a directory; the data is not synced, nor is the directory it is renamed in."""
    script.mkdir("t").create("t/data", DATA).create("t/COMPLETE", b"1").fsync("t/COMPLETE").fsync("t")
    script.rename("t", "step-1")


def is_torn(state: State) -> bool:
    """A reader that believes the marker has a wrong state."""
    data = state.visible.get("step-1/data")
    return "step-1/COMPLETE" in state.visible and (not isinstance(data, File) or data.data != DATA)


def is_lost(state: State) -> bool:
    return state.acked == 1 and "step-1" not in state.visible


def is_marked(state: State) -> bool:
    return "step-1/COMPLETE" in state.visible


@pytest.mark.parametrize("model", [name for name in MODEL_NAMES if name != "kill"])
@pytest.mark.parametrize(
    ("is_same", "lost", "last"),
    [
        pytest.param(is_torn, "write", "rename", id="data that is lost though the marker is there"),
        pytest.param(is_lost, "rename", "save", id="a rename that is lost though the save had returned"),
    ],
)
def test_one_loss_and_the_operation_it_must_come_before(
    model: ModelName, is_same: Callable[[State], bool], lost: str, last: str
) -> None:
    explorer = Explorer(Script().save(1, save).recording, [model])
    failing = [state for state in explorer.states() if is_same(state)]
    assert failing
    for state in failing:
        smallest = shrink(explorer, state, is_same)
        assert is_same(smallest)
        (loss,) = losses(smallest.situation, smallest.chosen)
        assert lost_operations(loss)[0].call == lost
        assert last_operation(explorer, smallest).call == last


def last_operation(explorer: Explorer, state: State) -> Operation:
    return explorer.models.order.operations(state.situation.cut)[-1]


def test_a_kill_needs_no_loss_only_the_place() -> None:
    explorer = Explorer(Script().save(1, save).recording, ["kill"])
    state = [state for state in explorer.states() if is_marked(state)][-1]
    smallest = shrink(explorer, state, is_marked)
    assert losses(smallest.situation, smallest.chosen) == []
    assert last_operation(explorer, smallest).call == "rename"


def test_losses_that_belong_together_stay_together() -> None:
    script = Script().create("a", b"1").create("b", b"1").create("c", b"1").ack(1)
    explorer = Explorer(script.recording, ["posix-min"])

    def needs_both(state: State) -> bool:
        return state.acked == 1 and "a" not in state.visible and "c" not in state.visible

    state = next(state for state in explorer.states() if needs_both(state) and "b" not in state.visible)
    smallest = shrink(explorer, state, needs_both)
    assert [lost_operations(loss)[0].path for loss in losses(smallest.situation, smallest.chosen)] == ["a", "c"]
    assert "b" in smallest.visible
