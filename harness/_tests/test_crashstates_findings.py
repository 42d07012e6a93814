"""Each rule on a save that breaks it, and on one that does nearly the same and does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness._tests.crash_recordings import Script
from harness.crashstates.findings import static_findings

OLD, NEW = b"old" * 100, b"new" * 100


def sound(script: Script, name: str = "step-1") -> None:
    script.mkdir(f"{name}.tmp").create(f"{name}.tmp/data", NEW).fsync(f"{name}.tmp/data")
    script.create(f"{name}.tmp/COMPLETE", b"yes").fsync(f"{name}.tmp/COMPLETE").fsync(f"{name}.tmp")
    script.rename(f"{name}.tmp", name).fsync()


def second(does: Callable[[Script], object]) -> Script:
    """A first save that is sound, then one that ``does``."""
    script = Script().save(1, sound).begin(2)
    does(script)
    return script.ack(2)


def rules(script: Script) -> set[str]:
    return {finding.rule for finding in static_findings(script.recording)}


def test_a_sound_save_has_no_finding() -> None:
    script = Script().save(1, sound).save(2, lambda s: sound(s, "step-2"))
    script.begin(3)
    sound(script, "step-3")
    script.unlink("step-1/COMPLETE").unlink("step-1/data").fsync().ack(3)
    assert static_findings(script.recording) == []


@pytest.mark.parametrize(
    ("rule", "words", "does"),
    [
        pytest.param(
            "fsync-before-flush",
            "b is synced, then 300 bytes are written to it",
            lambda s: s.create("b").fsync("b").write("b", NEW).fsync(),
            id="a file is synced before its bytes are written",
        ),
        pytest.param(
            "rename-without-directory-fsync",
            "b.tmp is renamed to b,",
            lambda s: s.create("b.tmp", NEW).fsync("b.tmp").rename("b.tmp", "b"),
            id="nothing syncs the directory after the rename",
        ),
        pytest.param(
            "marker-before-data",
            "latest is written before b",
            lambda s: s.create("latest", b"2").fsync("latest").create("b", NEW).fsync("b").fsync(),
            id="the pointer is written first",
        ),
        pytest.param(
            "marker-before-data",
            "latest is written while b is not durable",
            lambda s: s.create("b", NEW).create("latest", b"2").fsync("b").fsync("latest").fsync(),
            id="the pointer is written while the data may still be lost",
        ),
        pytest.param(
            "overwrite-in-place",
            "step-1/data held bytes of an acknowledged save",
            lambda s: s.write("step-1/data", NEW, offset=0).fsync("step-1/data"),
            id="the last save's file is written over",
        ),
        pytest.param(
            "overwrite-in-place",
            "step-1/data held bytes of an acknowledged save",
            lambda s: s.truncate("step-1/data").write("step-1/data", NEW).fsync("step-1/data"),
            id="the last save's file is truncated",
        ),
        pytest.param(
            "delete-before-durable",
            "step-1/data is deleted before the new save is begun",
            lambda s: s.unlink("step-1/data").create("b", NEW).fsync("b").fsync(),
            id="the old one is deleted first",
        ),
        pytest.param(
            "delete-before-durable",
            "step-1/data is deleted while b of the new save is not durable",
            lambda s: s.create("b", NEW).unlink("step-1/data").fsync("b").fsync(),
            id="the old one is deleted before the new one is synced",
        ),
        pytest.param(
            "replace-across-mounts",
            "b is a copy of /tmp/x, made in place",
            lambda s: s.create("b").write("b", NEW, source="/tmp/x").fsync("b").fsync(),
            id="a file is copied to its final name",
        ),
        pytest.param(
            "never-synced",
            "b is not synced",
            lambda s: s.create("b", NEW).fsync(),
            id="a file is never synced",
        ),
    ],
)
def test_a_wrong_order_is_found(rule: str, words: str, does: Callable[[Script], object]) -> None:
    found = [finding for finding in static_findings(second(does).recording) if finding.rule == rule]
    assert len(found) == 1
    assert words in found[0].words
    assert found[0].operations[0].site


@pytest.mark.parametrize(
    ("rule", "does"),
    [
        pytest.param("overwrite-in-place", lambda s: s.write("step-1/data", NEW), id="a journal is only appended to"),
        pytest.param("never-synced", lambda s: s.create("b", NEW).sync(), id="one sync for all"),
        pytest.param(
            "replace-across-mounts",
            lambda s: s.create("t").write("t", NEW, source="/tmp/x").fsync("t").rename("t", "b").fsync(),
            id="copied to a temporary name, then renamed",
        ),
        pytest.param(
            "fsync-before-flush",
            lambda s: s.create("b", NEW).fsync("b").write("b", NEW).fsync("b").fsync(),
            id="synced again after the last write",
        ),
        pytest.param(
            "marker-before-data",
            lambda s: s.create("metadata", b"x" * (1 << 20)).create("b", NEW).fsync("b").fsync("metadata").fsync(),
            id="a large file is data whatever its name",
        ),
        pytest.param(
            "delete-before-durable",
            lambda s: s.create("b", NEW).fsync("b").fsync().unlink("step-1/data"),
            id="the old one goes when the new one is durable",
        ),
    ],
)
def test_what_is_right_is_not_reported(rule: str, does: Callable[[Script], object]) -> None:
    assert rule not in rules(second(does))


@pytest.mark.parametrize(("has_sites", "num"), [(True, 3), (False, 1)], ids=["each line", "no lines: each name"])
def test_the_same_thing_in_another_save_is_reported_once(has_sites: bool, num: int) -> None:
    script = Script(has_sites=has_sites)  # with lines, each operation has another
    for step in (1, 2, 3):
        script.begin(step).create(f"step-{step}", NEW).ack(step)
    found = [finding for finding in static_findings(script.recording) if finding.rule == "never-synced"]
    assert len(found) == num
