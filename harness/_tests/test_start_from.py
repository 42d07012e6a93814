"""What a job may begin with: copied as it stands, or refused with the reason, before anything runs."""

from __future__ import annotations

import io
import json
import lzma
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.crashstates.archive import FORMAT
from harness.crashstates.read.disk import look
from harness.crashstates.tree import File
from harness.errors import RecordError
from harness.plan import Expect, Plan
from harness.run import Session
from harness.start_from import Start, load_start

ABOUT = {"format": FORMAT, "file": "saver.py", "verdict": "lost-ack", "lines": [], "acked": 4, "begun": 6, "truth": {}}


def member(
    name: str, data: bytes | None = b"", *, link: str | None = None, kind: bytes | None = None
) -> tarfile.TarInfo:
    """A file with ``data`` (None: a directory), a link, or a thing of another kind."""
    info = tarfile.TarInfo(name)
    info.type = kind or (tarfile.DIRTYPE if data is None else tarfile.REGTYPE if link is None else tarfile.SYMTYPE)
    info.size, info.linkname = len(data or b""), link or ""
    return info


def archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    about = json.dumps(ABOUT).encode()
    with tarfile.open(path, "w") as tar:
        for info, data in ((member("state.json", about), about), (member("checkpoints", None), b""), *members):
            tar.addfile(info, io.BytesIO(data))
    return path


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    root = tmp_path / "left"
    (root / "step-5").mkdir(parents=True)
    (root / "step-5" / "model.pt").write_bytes(b"weights")
    os.utime(root / "step-5" / "model.pt", ns=(1_000_000_000, 1_000_000_000))
    (root / "latest").symlink_to("step-5")
    (root / "step-5" / "up").symlink_to("../latest")
    return root


def test_a_directory_is_copied_as_it_stands(directory: Path, tmp_path: Path) -> None:
    start = load_start(directory, tmp_path / "runs")
    start.put(tmp_path / "checkpoints")
    assert look(tmp_path / "checkpoints") == look(directory)
    assert start.acknowledged is None


def test_an_archive_is_unpacked_and_tells_what_was_acknowledged(tmp_path: Path) -> None:
    kept = archive(
        tmp_path / "1-lost-ack.tar",
        (member("checkpoints/step-4", None), b""),
        (member("checkpoints/step-4/model.pt", b"weights"), b"weights"),
        (member("checkpoints/latest", link="step-4"), b""),
    )
    start = load_start(kept, tmp_path / "runs")
    start.put(tmp_path / "checkpoints")
    assert (tmp_path / "checkpoints" / "latest" / "model.pt").read_bytes() == b"weights"
    assert start.acknowledged == 4


def text_file(place: Path) -> Path:
    (place / "notes.tar").write_text("no archive")
    return place / "notes.tar"


def cut_short(place: Path) -> Path:
    data = archive(place / "whole.tar", (member("checkpoints/a", b"a" * 9999), b"a" * 9999)).read_bytes()
    (place / "cut.tar").write_bytes(data[:4000])
    return place / "cut.tar"


def with_link(text: str, name: str = "latest") -> Callable[[Path], Path]:
    def make(place: Path) -> Path:
        (place / "left" / name).parent.mkdir(parents=True)
        (place / "left" / name).symlink_to(text)
        return place / "left"

    return make


def through_two_links(place: Path) -> Path:
    (place / "left" / "a" / "b").mkdir(parents=True)
    (place / "left" / "a" / "b" / "up").symlink_to("..")
    (place / "left" / "out").symlink_to("a/b/up/../../evil")
    return place / "left"


def compressed_and_cut(place: Path) -> Path:
    whole = archive(place / "whole.tar", (member("checkpoints/a", b"a" * 9999), b"a" * 9999)).read_bytes()
    (place / "cut.tar.xz").write_bytes(lzma.compress(whole)[:200])
    return place / "cut.tar.xz"


def where_runs_are(place: Path) -> Path:
    return place


def holding(*members: tuple[tarfile.TarInfo, bytes]) -> Callable[[Path], Path]:
    return lambda place: archive(place / "hostile.tar", *members)


REFUSED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "nothing is there": (lambda place: place / "gone", "is neither a directory nor an archive"),
    "a file that is no archive": (text_file, "no archive of a crash state"),
    "an archive that was cut short": (cut_short, "no archive of a crash state"),
    "an archive that was compressed and cut short": (compressed_and_cut, "no archive of a crash state"),
    "the directory that the runs are kept in": (where_runs_are, "the runs are kept in it"),
    "a link to elsewhere": (with_link("/etc"), "latest is a link to /etc, out of the directory"),
    "a link to what is above": (with_link("../../other", "a/latest"), "a/latest is a link to ../../other, out of"),
    "an archive with a link to elsewhere": (
        holding((member("checkpoints/latest", link="/etc"), b"")),
        "latest is a link to /etc, out of the directory",
    ),
    "an archive with a name that leaves the directory": (
        holding((member("checkpoints/../beside"), b"")),
        "'checkpoints/../beside' leads out of the directory",
    ),
    "an archive with a file behind a link": (
        holding((member("checkpoints/a", link="b"), b""), (member("checkpoints/a/c"), b"")),
        "'checkpoints/a/c' is in no directory of the archive",
    ),
    "an archive with a device": (
        holding((member("checkpoints/null", kind=tarfile.CHRTYPE), b"")),
        "is neither a file, nor a directory, nor a link",
    ),
}


@pytest.mark.parametrize(("make", "says"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused_with_the_reason(make: Callable[[Path], Path], says: str, tmp_path: Path) -> None:
    with pytest.raises(RecordError) as refused:
        load_start(make(tmp_path), tmp_path / "runs")
    assert says in str(refused.value)


def test_a_link_that_leads_out_through_another_is_refused_and_nothing_stays(tmp_path: Path) -> None:
    start = load_start(through_two_links(tmp_path), tmp_path / "runs")
    with pytest.raises(RecordError, match=r"out is a link to a/b/up/\.\./\.\./evil, out of the directory"):
        start.put(tmp_path / "checkpoints")
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize("t_s", [1e30, float("inf"), float("nan")])
def test_a_time_that_no_file_can_have_is_refused(tmp_path: Path, t_s: float) -> None:
    start = Start(path=tmp_path / "kept.tar", visible={"a": File(b"", t_s)})
    with pytest.raises(RecordError, match="cannot be copied for the job to begin with"):
        start.put(tmp_path / "checkpoints")


def test_a_pipe_in_a_directory_is_refused(directory: Path, tmp_path: Path) -> None:
    os.mkfifo(directory / "pipe")
    with pytest.raises(RecordError, match="pipe"):
        load_start(directory, tmp_path / "runs").put(tmp_path / "checkpoints")


def test_a_run_that_cannot_begin_leaves_no_directory(tmp_path: Path) -> None:
    plan = Plan(
        name="a",
        script="train.py",
        ranks=1,
        expect=Expect(outcome="recovers"),
        start_from=str(text_file(tmp_path)),
    )
    with (
        Session(tmp_path / "store", tmp_path / "runs") as session,
        pytest.raises(RecordError, match="give one that --keep wrote"),
    ):
        session.run(plan)
    assert not (tmp_path / "runs").exists()
