"""A state is asked as the kernel would be: every answer agrees with real files."""

from __future__ import annotations

import errno
import os
import random
import stat
from pathlib import Path

import pytest

from harness._tests.random_trees import random_path, random_visible
from harness.crashstates.read.disk import Disk, modified_s
from harness.crashstates.read.questions import (
    Below,
    Content,
    Entry,
    Everything,
    Name,
    Names,
    Opened,
    Order,
    Outside,
    Question,
    Target,
    View,
    Views,
    resolve,
)
from harness.crashstates.tree import Directory, File, Link, Visible

T = 1_700_000_000.0
NUM_STATES, NUM_PATHS = 150, 40


def kernels_word(path: str, *, follow: bool) -> str:
    """What the kernel finds there: an error, or kind and real place."""
    try:
        status = os.stat(path, follow_symlinks=follow)  # noqa: PTH116  Path would tidy the path up
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    if stat.S_ISLNK(status.st_mode):
        return f"link to {os.readlink(path)}"  # noqa: PTH115
    if stat.S_ISREG(status.st_mode):
        return f"file {Path(path).read_bytes()!r}"
    return f"directory {os.path.realpath(path)}"


def our_word(view: View, root: str, path: str, *, follow: bool) -> str:
    where, node = view.at(path, follow=follow)
    match node:
        case File(data):
            return f"file {data!r}"
        case Link(text):
            return f"link to {text}"
        case Directory():
            return f"directory {root}/{where}".rstrip("/")
        case None:
            return kernels_word(where, follow=False) if where.startswith("/") else where


@pytest.mark.parametrize("follow", [True, False], ids=["stat", "lstat"])
def test_paths_lead_where_the_kernel_says(tmp_path: Path, follow: bool) -> None:
    rng = random.Random(follow)
    root = f"{tmp_path}/root"
    disk = Disk(Path(root))
    words = set()
    views = Views(root, Outside())
    for _ in range(NUM_STATES):
        visible = random_visible(rng, root=root)
        disk.put(visible)
        view = views.of(visible)
        for _ in range(NUM_PATHS):
            path = random_path(rng) + rng.choice(("", "", "/"))
            expected = kernels_word(f"{root}/{path}", follow=follow)
            assert our_word(view, root, path, follow=follow) == expected, (path, visible)
            words.add(expected.partition(" ")[0])
    assert words >= {"ENOENT", "ENOTDIR", "ELOOP", "file", "directory"}


def test_times_are_those_that_are_put() -> None:
    rng = random.Random(3)
    views = Views("/nowhere", Outside())
    for _ in range(NUM_STATES):
        visible = random_visible(rng, with_links=False)
        view = views.of(visible)
        times = {path: view.time_s(files) for path in ("", *visible) for files in view.shape.datings(path)}
        assert times == modified_s(visible)


def test_states_that_differ_in_files_alone_share_a_shape_and_no_answer() -> None:
    views = Views("/nowhere", Outside())
    one, other = views.of({"a": File(b"1", T)}), views.of({"a": File(b"22", T + 1)})
    assert one.shape is other.shape
    assert [Content("a").answer(one), Name("a").answer(one)] != [Content("a").answer(other), Name("a").answer(other)]
    assert views.of({"a": Link("b")}).shape is not views.of({"a": Link("c")}).shape


def view_of(visible: Visible) -> View:
    return Views("/nowhere", Outside()).of(visible)


def test_of_a_directory_its_number_of_links_tells_what_is_in_it() -> None:
    base: Visible = {"d": Directory(), "d/file": File(b"1", T)}
    answers = [
        Target("d").answer(view_of(base | more))
        for more in ({}, {"d/stage": Directory()}, {"d/other": File(b"2", T)}, {"d/link": Link("file")})
    ]
    assert answers[1] != answers[0] == answers[2] == answers[3]


BASE: Visible = {
    "latest": Link("step-2"),
    "other": File(b"123", T + 9),
    "step-1": Directory(),
    "step-1/model": File(b"one", T + 1),
    "step-2": Directory(),
    "step-2/model": File(b"two", T + 2),
}


def without(*paths: str) -> Visible:
    return {path: node for path, node in BASE.items() if path not in paths}


# question, a state that answers it as BASE does, a state that does not
QUESTIONS: dict[str, tuple[Question, Visible, Visible]] = {
    "stat sees the size": (
        Target("other"),
        BASE | {"other": File(b"321", T)},
        BASE | {"other": File(b"1234", T + 9)},
    ),
    "stat sees what a link leads to": (
        Target("latest/model"),
        BASE | {"other": File(b"", T)},
        BASE | {"latest": Link("step-3")},
    ),
    "stat sees which directory it is": (
        Target("latest"),
        BASE | {"latest": Link("./step-2/")},
        BASE | {"latest": Link("step-1")},
    ),
    "lstat sees the link and not what it leads to": (
        Name("latest"),
        without("step-2", "step-2/model"),
        BASE | {"latest": Link("./step-2")},
    ),
    "readlink sees the link and no sizes": (
        Entry("latest"),
        BASE | {"other": File(b"", T)},
        BASE | {"latest": Link("step-1")},
    ),
    "unlink sees that there is a file, and not its size": (
        Entry("other"),
        BASE | {"other": File(b"1234", T)},
        BASE | {"other": Directory()},
    ),
    "open sees that there is a file, and not what is in it": (
        Opened("latest/model"),
        BASE | {"step-2/model": File(b"more", T)},
        BASE | {"step-2/model": Directory()},
    ),
    "open sees which file it is": (Opened("latest/model"), BASE, BASE | {"latest": Link("step-1")}),
    "read sees the bytes": (
        Content("step-1/model"),
        BASE | {"step-1/model": File(b"one", T + 8)},
        BASE | {"step-1/model": File(b"onf", T + 1)},
    ),
    "read sees through links": (
        Content("latest/model"),
        BASE | {"latest": Link("/nowhere/step-2")},
        BASE | {"latest": Link("step-1")},
    ),
    "read sees that there is nothing": (
        Content("step-3/model"),
        BASE | {"other": File(b"", T)},
        BASE | {"step-3": File(b"", T)},
    ),
    "a listing sees names and kinds alone": (
        Names("step-1"),
        BASE | {"step-1/model": File(b"more", T)},
        BASE | {"step-1/model": Directory()},
    ),
    "a listing sees what is added": (Names(""), BASE | {"step-1/x": Directory()}, BASE | {"x": Directory()}),
    "a rename sees all below": (
        Below("step-2"),
        BASE | {"step-1/model": File(b"", T)},
        BASE | {"step-2/model": File(b"", T)},
    ),
    "a rename sees the file itself": (Below("other"), without("latest"), BASE | {"other": File(b"x", T)}),
    "times count as an order": (
        Order("step-1/model\0other\0absent"),
        BASE | {"step-1/model": File(b"", T + 5), "step-2/model": File(b"", T + 99)},
        BASE | {"step-1/model": File(b"", T + 10)},
    ),
    "a directory is as new as what is below": (
        Order("step-1\0step-2"),
        BASE | {"step-2/model": File(b"", T + 50)},
        BASE | {"step-1/model": File(b"", T + 50)},
    ),
    "everything sees everything": (Everything(""), dict(BASE), without("latest")),
}


@pytest.mark.parametrize(("question", "like", "unlike"), QUESTIONS.values(), ids=QUESTIONS)
def test_question(question: Question, like: Visible, unlike: Visible) -> None:
    answer = question.answer(view_of(BASE))
    assert hash(answer) == hash(answer)
    assert question.answer(view_of(dict(sorted(like.items())))) == answer
    assert question.answer(view_of(dict(sorted(unlike.items())))) != answer


def test_a_link_out_and_in_again_is_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (tmp_path / "way").symlink_to("root")
    state: Visible = {"a": Link("../way/b"), "b": File(b"1", T)}
    assert resolve(str(root), f"{root}/a", state, Outside(), follow=True) == f"{root}/b"


def test_links_in_circles_end() -> None:
    state: Visible = {"a": Link("b"), "b": Link("a")}
    assert view_of(state).at("a", follow=True) == ("ELOOP", None)
    assert view_of(state).at("a", follow=False) == ("a", Link("b"))
