"""Faults on the files of checkpoints: what they leave on a real disk, and what they say of it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from harness._tests.histories import Story, run
from harness.checks import GUARANTEES, Verdict
from harness.faults.base import At
from harness.faults.damage_file import DamageFile
from harness.faults.files import FilesFault, checkpoints_in
from harness.faults.move_latest import MoveLatest
from harness.rank.recorder import Recorder
from harness.rank.triggers import Triggers
from harness.wire import CHECKPOINTS, Event, Kind

OLD, NEW = bytes(range(256)) * 40, bytes(reversed(range(256))) * 40  # 10,240 bytes: two pages and a half


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for step, data in ((5, OLD), (10, NEW)):
        (tmp_path / f"step-{step}").mkdir()
        (tmp_path / f"step-{step}" / "model.pt").write_bytes(data)
    (tmp_path / ".corrupt-step-15").mkdir()
    (tmp_path / "step-20.tmp").mkdir()
    (tmp_path / "latest").symlink_to("step-10")
    return tmp_path


def damaged(**fields: Any) -> DamageFile:
    return DamageFile(**{"rank": 0, "file": "model.pt", **fields})


LEFT: dict[str, tuple[DamageFile, int, bytes | None]] = {
    "one bit of the middle": (damaged(how="bit"), 10, NEW[:5120] + bytes([NEW[5120] ^ 1]) + NEW[5121:]),
    "the page of the middle": (damaged(how="page"), 10, NEW[:4096] + bytes(4096) + NEW[8192:]),
    "nothing in the file": (damaged(how="empty"), 10, b""),
    "no file": (damaged(how="missing"), 10, None),
    "the file of the checkpoint before": (damaged(how="stale"), 10, OLD),
    "a bit of an older checkpoint": (damaged(checkpoint=5), 5, OLD[:5120] + bytes([OLD[5120] ^ 1]) + OLD[5121:]),
}


@pytest.mark.parametrize(("fault", "step", "left"), LEFT.values(), ids=LEFT)
def test_what_is_left_of_a_file(root: Path, fault: DamageFile, step: int, left: bytes | None) -> None:
    measured = fault.damage(root)
    for other, data in ((5, OLD), (10, NEW)):
        file = root / f"step-{other}" / "model.pt"
        assert (file.read_bytes() if file.exists() else None) == (left if other == step else data)
    assert measured["damaged"] == f"step-{step}"
    assert proof(fault, **measured) is None


def test_a_page_at_the_end_of_a_small_file_is_zeroed_and_no_longer(root: Path) -> None:
    (root / "step-10" / "model.pt").write_bytes(b"abc")
    damaged(how="page").damage(root)
    assert (root / "step-10" / "model.pt").read_bytes() == bytes(3)


LINKS: dict[str, tuple[Any, str | None, bool]] = {
    "no link": ("missing", None, False),
    "to a checkpoint that is not there": ("dangling", "step-11", False),
    "to the oldest": ("behind", "step-5", True),
    "to one that is empty": ("ahead", "step-11", True),
}


@pytest.mark.parametrize(("to", "target", "is_there"), LINKS.values(), ids=LINKS)
def test_where_the_link_leads(root: Path, to: Any, target: str | None, is_there: bool) -> None:
    fault = MoveLatest(rank=0, to=to)
    measured = fault.damage(root)
    link = root / "latest"
    assert (str(link.readlink()) if link.is_symlink() else None) == target
    assert link.exists() == is_there
    assert (measured["damaged"], proof(fault, **measured)) == (None, None)


NOT_DONE: dict[str, tuple[FilesFault, str]] = {
    "no such file": (damaged(file="COMPLETE"), "there is no file COMPLETE in step-10; there are: model.pt"),
    "no such checkpoint": (damaged(checkpoint=7), "there is no checkpoint of step 7 in"),
    "none before it": (damaged(how="stale", checkpoint=5), "no checkpoint before step 5 has a model.pt"),
}


@pytest.mark.parametrize(("fault", "said"), NOT_DONE.values(), ids=NOT_DONE)
def test_what_cannot_be_damaged_is_said(root: Path, fault: FilesFault, said: str) -> None:
    assert said in (proof(fault, **fault.damage(root)) or "")


@pytest.mark.parametrize("fault", [damaged(), MoveLatest(rank=0)], ids=["a file", "the link"])
def test_without_a_checkpoint_nothing_is_damaged(tmp_path: Path, fault: FilesFault) -> None:
    assert "there is no checkpoint in" in (proof(fault, **fault.damage(tmp_path)) or "")


def test_damage_that_changes_nothing_proves_nothing(root: Path) -> None:
    (root / "step-10" / "model.pt").write_bytes(b"")
    assert "nothing changed" in (proof(damaged(how="empty"), **damaged(how="empty").damage(root)) or "")
    (root / "latest").unlink()
    link = MoveLatest(rank=0, to="missing")
    assert "nothing changed" in (proof(link, **link.damage(root)) or "")


def test_only_whole_names_are_checkpoints(root: Path) -> None:
    assert checkpoints_in(root) == {5: root / "step-5", 10: root / "step-10"}


def proof(fault: FilesFault, **measured: Any) -> str | None:
    fired = Event(0, 1, 1, 1, Kind.FAULT, 0, "load", {"index": 1, "fault": fault.kind, "effect": "in words"})
    told = dataclasses.replace(fired, seq=2, t_ns=2, kind=Kind.EFFECT, data={"index": 1, **measured})
    assert fault.missing_effect(fired, []) is not None
    return fault.missing_effect(fired, [told])


@pytest.mark.parametrize(
    "at", [At(phase="load", restart=1), At(failpoint="ckpt.load.read:before", restart=1)], ids=["phase", "failpoint"]
)
def test_it_acts_where_it_is_planned_and_is_on_record(tmp_path: Path, at: At) -> None:
    root = tmp_path / CHECKPOINTS / "step-5"
    root.mkdir(parents=True)
    (root / "COMPLETE").write_text("done")
    recorder = Recorder(tmp_path / "events-1.jsonl")
    fault = damaged(file="COMPLETE", how="missing", at=at)
    triggers = Triggers([fault], recorder, tmp_path, rank=0, world_size=2, restart=1, meeting_s=1.0)
    triggers.at_phase(0, "init")
    triggers.at_failpoint("ckpt.load.read:after")
    assert (root / "COMPLETE").exists()
    triggers.at_phase(0, "load")
    triggers.at_failpoint("ckpt.load.read:before")
    assert not (root / "COMPLETE").exists()
    recorder.trim()
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "events-1.jsonl").read_text().splitlines()]
    assert kinds == [Kind.FAULT, Kind.EFFECT]


# -- what of it the checks take into account -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damaged_step", "loaded", "outcome"),
    [(10, 5, "valid"), (5, 5, "invalid"), (None, 5, "invalid"), (10, None, "invalid")],
    ids=["the newest, by a fault", "another one", "none", "the newest by a fault, and the one before is lost, too"],
)
def test_an_acknowledged_save_need_not_survive_its_damage(
    damaged_step: int | None, loaded: int | None, outcome: str
) -> None:
    fault = damaged()
    story = run(faults=[fault], expect="recovers").start(with_store=True).updates(1, 5).save().updates(6, 10).save()
    if damaged_step is not None:
        story.tell(0, Kind.EFFECT, index=0, fault="damage_file", damaged=f"step-{damaged_step}", before="a", after="b")
    found = _after_the_damage(story, loaded)
    assert found.outcome == outcome, found


def test_it_may_be_damaged_before_the_last_rank_is_told_that_it_is_done() -> None:
    story = run(faults=[damaged()], expect="recovers").start(with_store=True).updates(1, 5).save().updates(6, 10).save()
    (late,) = [e for e in story.events if e["kind"] == Kind.SAVE_END and (e["rank"], e["step"]) == (1, 10)]
    story.tell(0, Kind.EFFECT, index=0, fault="damage_file", damaged="step-10", before="a", after="b")
    story.events.remove(late)
    story.events.append(late)
    assert _after_the_damage(story, 5).outcome == "valid"


def _after_the_damage(story: Story, loaded: int | None) -> Verdict:
    story.kill(1).cut_off()
    story.kept = {5: "complete", 10: "incomplete"}
    history = story.start(load=loaded, with_store=True).leave().history()
    return GUARANTEES["AcknowledgedSurvives"].check(history, None)
