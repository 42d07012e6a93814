"""OnlyCompleteLoads, NewestCompleteLoads, AcknowledgedSurvives, RetentionSafe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from harness._tests.histories import RAW, Story, run
from harness.checkpoint.judge import Entry
from harness.checkpoint.store import CheckpointStore
from harness.checks import GUARANTEES
from harness.errors import RecordError
from harness.remains import load_remains, look, unseen_roots
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
    assert not RAW.search(found.reason), found.reason


def test_ranks_that_were_given_different_checkpoints_are_told_apart_in_words() -> None:
    found = verdict("NewestCompleteLoads", load_of_rank(resumed(crashed(), 10), 1, None))
    assert found.reason == "the ranks were given different checkpoints: rank 0 step 10, rank 1 nothing"


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


# -- a job that ends before anybody has looked --


COMPLETE = Entry(name="step-5", step=5, verdict="complete", reason="all fits")
HALF = Entry(name="step-5", step=5, verdict="incomplete", reason="there is no COMPLETE")
REMAINS = {
    "nobody looked at the end either": (None, False, "unknown"),
    "it left what it had saved": ([COMPLETE], False, "valid"),
    "it left nothing": ([], False, "invalid"),
    "it left half of it": ([HALF], False, "invalid"),
    "a fault has damaged what it left": ([HALF], True, "unknown"),
}


@pytest.mark.parametrize("what", REMAINS)
def test_a_job_that_ends_right_after_its_first_save_has_left_a_complete_checkpoint(what: str) -> None:
    entries, is_damaged, outcome = REMAINS[what]
    story = run().start(with_store=True).updates(1, 5).save()
    if is_damaged:
        story.tell(0, Kind.EFFECT, index=0, fault="damage_file", damaged="step-5")
    last = max(number for number, event in enumerate(story.events) if event["kind"] == Kind.SAVE_END)
    story.events = [e for n, e in enumerate(story.events) if e["kind"] != Kind.INVENTORY or n < last]
    history = story.kill(0).cut_off().history()
    assert unseen_roots(history.of((Kind.SAVE_END, Kind.INVENTORY))) == {"/run/checkpoints"}
    remains = {} if entries is None else {"/run/checkpoints": entries}
    found = GUARANTEES["RetentionSafe"].check(replace(history, remains=remains), None)
    assert (found.outcome, found.step) == (outcome, 5 if outcome != "valid" else None), found


def test_what_a_job_leaves_is_looked_at_and_kept(tmp_path: Path) -> None:
    root, run_dir = tmp_path / "checkpoints", tmp_path / "run"
    (root / "step-5").mkdir(parents=True)
    run_dir.mkdir()
    found = look([str(root), str(tmp_path / "never-made")], run_dir)
    assert {name: [entry.verdict for entry in entries] for name, entries in found.items()} == {
        str(root): ["incomplete"],  # what is not there may have been removed, or lie where only the ranks see it
    }
    assert load_remains(run_dir) == found
    (run_dir / "remains.json").write_text('{"x": [{"name": 1}]}')
    with pytest.raises(RecordError, match=r"remains.json: no readable list of checkpoints .*; run the scenario again"):
        load_remains(run_dir)


def test_where_the_store_has_looked_since_the_first_save_nobody_looks_again() -> None:
    """Rank 1 hears of its save when rank 0 has taken the inventory: so it is in healthy jobs."""
    story = crashed()
    last = story.events[max(n for n, event in enumerate(story.events) if event["kind"] == Kind.SAVE_END)]
    story.events.append(last | {"rank": 1})
    assert unseen_roots(story.history().of((Kind.SAVE_END, Kind.INVENTORY))) == set()


def test_of_older_checkpoints_than_a_complete_one_nothing_is_read(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    store = CheckpointStore(root)
    for step in (5, 10):
        store.save(step, {"model": {"weight": torch.ones(3)}}, {})
    for file in (root / "step-5").iterdir():
        file.write_bytes(b"unread")
    found = look([str(root)], tmp_path)
    assert [(entry.name, entry.verdict) for entry in found[str(root)]] == [("step-10", "complete")]


# -- a restart that looks for nothing ------------------------------------------------------------------------------


def acknowledged_before_any_inventory() -> Story:
    story = crashed().drop(Kind.INVENTORY)
    return story.start().updates(1, 12).leave()


def test_a_save_that_was_reported_done_is_enough_to_be_missed() -> None:
    found = verdict("NewestCompleteLoads", acknowledged_before_any_inventory())
    assert (found.outcome, found.rank, found.step) == ("invalid", 0, 10), found


def in_another_directory(story: Story, *, looks_first: bool = False) -> Story:
    """The restart looks into an empty directory beside the one that was saved to, or into both."""
    story.start(load=None, with_store=True)
    inventories = [e for e in story.events if (e["kind"], e["restart"]) == (Kind.INVENTORY, 1)]
    inventories[0]["data"] |= {"root": "/run/again", "entries": []}
    if looks_first:
        place = story.events.index(inventories[0])
        known = inventories[0] | {"data": {"why": "load", "root": "/run/checkpoints", "entries": story.entries()}}
        story.events.insert(place, known)
    return story.updates(1, 12).leave()


@pytest.mark.parametrize("looks_first", [False, True])
def test_a_restart_that_begins_with_nothing_beside_what_there_is(looks_first: bool) -> None:
    story = in_another_directory(crashed(), looks_first=looks_first)
    found = verdict("NewestCompleteLoads", story)
    assert (found.outcome, found.rank, found.step) == ("invalid", 0, 10), found
    assert "/run/checkpoints" in found.reason
    assert verdict("RetentionSafe", story).outcome == "valid"


def test_a_restart_that_finds_all_its_checkpoints_broken_has_passed_none_over() -> None:
    story = half_written(half_written(crashed(), 5), 10)
    assert verdict("NewestCompleteLoads", in_another_directory(story, looks_first=True)).outcome == "not-applicable"


def test_a_second_directory_may_be_empty() -> None:
    """The best models go to a directory of their own."""
    story = resumed(crashed(), 10)
    story.alive = {0}
    story.tell(0, Kind.INVENTORY, phase="load", root="/run/best", entries=[], why="load")
    assert verdict("RetentionSafe", story).outcome == "valid"


def exported(*, steps: tuple[int, ...] = (4, 8), by: str = "torch.save", read_first: str | None = None) -> Story:
    """A job without our store: rank 0 writes files after some updates; rank 1 is killed in update 10."""
    story = run(expect="recovers").start()
    if read_first is not None:
        story.tell(0, Kind.FOREIGN_LOAD, phase="load", by="torch.load", path=read_first)
    done = 0
    for step in steps:
        story.updates(done + 1, step).tell(0, Kind.FOREIGN_SAVE, phase="save", by=by, path=f"/out/{step}.pt")
        done = step
    return story.updates(done + 1, 9).begin(1, 10).kill(1).cut_off()


def begins_again(story: Story, *, reads: str | None = "", at_step: int = 0) -> Story:
    """The restart, which reads a file (None: from an open one; "": none) and goes on from a step."""
    story.start()
    if reads != "":
        story.tell(0, Kind.FOREIGN_LOAD, phase="load", by="torch.load", path=reads)
    story.edit(Kind.STATE, restart=1)
    for event in story.events:
        if (event["kind"], event["restart"]) == (Kind.STATE, 1):
            event["step"] = at_step
    return story.updates(at_step + 1, 12).leave()


QUESTIONABLE: dict[str, Tell] = {
    "it reads nothing": lambda: begins_again(exported()),
    "another library wrote it": lambda: begins_again(exported(by="safetensors.save_file")),
    "it reads only what every launch reads": lambda: begins_again(
        exported(read_first="/pretrained.pt"), reads="/pretrained.pt"
    ),
}


@pytest.mark.parametrize("name", QUESTIONABLE)
def test_files_that_are_never_read_again_are_a_question(name: str) -> None:
    found = verdict("NewestCompleteLoads", QUESTIONABLE[name]())
    assert (found.outcome, found.rank, found.step) == ("unknown", 0, 8), found
    assert "/out/8.pt" in found.reason
    assert "resume_step = 0" in found.reason


BEGINS_ANEW: dict[str, Tell] = {
    "nothing was ever written": lambda: begins_again(exported(steps=())),
    "what was written before the first update": lambda: writes_its_arguments(),
    "what every launch reads is no checkpoint of it": lambda: begins_again(
        exported(steps=(), read_first="/pretrained.pt"), reads="/pretrained.pt"
    ),
}


@pytest.mark.parametrize("name", BEGINS_ANEW)
def test_a_job_that_begins_anew_and_of_which_no_save_is_on_record_is_a_question(name: str) -> None:
    story = BEGINS_ANEW[name]()
    found = verdict("NewestCompleteLoads", story)
    assert (found.outcome, found.restart) == ("unknown", 1), found
    assert "began again at step 0, after update" in found.reason
    assert "resume_step = 0" in found.reason
    story.plan = replace(story.plan, expect=replace(story.plan.expect, resume_step=0))
    assert verdict("NewestCompleteLoads", story).outcome == "not-applicable"


def test_a_job_that_failed_is_not_asked_what_it_began_with() -> None:
    story = begins_again(exported(steps=()))
    assert GUARANTEES["NewestCompleteLoads"].check(story.history(1), None).outcome == "not-applicable"


def zero_is_meant() -> Story:
    story = begins_again(exported())
    story.plan = replace(story.plan, expect=replace(story.plan.expect, resume_step=0))
    return story


def killed_with_a_draft() -> Story:
    """The write has come back, and the process ends before it can rename the file."""
    story = run(expect="recovers").start().updates(1, 4)
    story.tell(0, Kind.FOREIGN_SAVE, phase="save", by="torch.save", path="/out/last.tmp").kill(0).cut_off()
    return begins_again(story)


def writes_its_arguments() -> Story:
    story = run(expect="recovers").start()
    story.tell(0, Kind.FOREIGN_SAVE, step=0, by="torch.save", path="/out/args.pt")
    return begins_again(story.updates(1, 3).begin(1, 4).kill(1).cut_off())


def loads_with_our_store() -> Story:
    story = crashed()
    story.tell(0, Kind.FOREIGN_SAVE, phase="save", by="torch.save", path="/out/weights.pt")
    return resumed(story, 10)


NO_QUESTION: dict[str, Tell] = {
    "nothing was ever written, and the state is that of a later step": lambda: begins_again(
        exported(steps=()), at_step=8
    ),
    "the write may not have been the last of the save": killed_with_a_draft,
    "the file is read": lambda: begins_again(exported(), reads="/out/8.pt"),
    "something new is read": lambda: begins_again(exported(read_first="/pretrained.pt"), reads="/out/final.pt"),
    "an open file is read": lambda: begins_again(exported(), reads=None),
    "the state is that of a later step, however it came there": lambda: begins_again(exported(), at_step=8),
    "the scenario says that zero is meant": zero_is_meant,
    "the job did not restart": lambda: run().start().updates(1, 12).leave(),
    "an export beside our store, which is loaded": loads_with_our_store,
}


@pytest.mark.parametrize("name", NO_QUESTION)
def test_no_question_is_raised(name: str) -> None:
    found = verdict("NewestCompleteLoads", NO_QUESTION[name]())
    assert found.outcome in ("valid", "not-applicable"), found


@pytest.mark.parametrize(
    "guarantee", ["OnlyCompleteLoads", "NewestCompleteLoads", "AcknowledgedSurvives", "RetentionSafe"]
)
def test_files_that_other_code_wrote_are_said_not_to_be_judged(guarantee: str) -> None:
    found = verdict(guarantee, begins_again(exported(), reads="/out/8.pt", at_step=8))
    assert found.outcome == "not-applicable"
    assert "; the files of torch.load, torch.save are not judged: nothing tells which are whole" in found.reason
