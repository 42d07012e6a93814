"""The planted savers are right but for their bug, and the table that says what they must be found to do is in order."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.crashstates.ranks.outcome import NOTHING, Loaded, Outcome
from harness.crashstates.ranks.session import Host, Session
from harness.crashstates.verdict import SAFE, VERDICTS
from harness.errors import HarnessError
from harness.planted_savers import PlantedSaver, healthy_savers, planted_savers, read_table

PLANTED = planted_savers()
HEALTHY = healthy_savers()
DEADLINE_S = 20.0


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with Host(preload=("torch",)) as host:
        yield host


def saved_and_loaded(host: Host, file: Path, directory: Path) -> Iterator[tuple[Outcome, Outcome | None]]:
    """After each undisturbed save: what load returns, and what it should; the first is of the empty directory."""
    (directory / "0").mkdir(parents=True)
    with Session(file, host=host) as session:
        with session.start_savers() as savers:  # ended before anybody loads: some own their directory while they live
            shutil.copytree(directory / "0", directory / "now")
            for step in session.steps:
                savers.save(step, directory / "now", DEADLINE_S)
                shutil.copytree(directory / "now", directory / str(step), symlinks=True)
        with session.start_readers() as readers:
            yield readers.load(directory / "0", DEADLINE_S), None
            for step in session.steps:
                expected = readers.expected(step, DEADLINE_S) if session.has_expected else None
                yield readers.load(directory / str(step), DEADLINE_S), expected


def complaints(host: Host, file: Path, directory: Path) -> list[str]:
    """What is wrong with a saver and its reader though nothing happened to them."""
    (empty, _), *saved = saved_and_loaded(host, file, directory)
    found = [] if all(rank == Loaded(NOTHING) for rank in empty.ranks) else [f"load of an empty directory {empty}"]
    found += [f"load {loaded}" for loaded, _ in saved if not loaded.has_returned]
    found += [f"load {loaded}, not {wanted}" for loaded, wanted in saved if wanted is not None and loaded != wanted]
    if len({loaded.ranks for loaded, _ in saved} | {empty.ranks}) != len(saved) + 1:
        found.append("load returns the same after two saves")
    return found


@pytest.mark.parametrize("file", HEALTHY, ids=[file.stem for file in HEALTHY])
def test_a_healthy_saver_loads_what_it_saved(host: Host, file: Path, tmp_path: Path) -> None:
    assert complaints(host, file, tmp_path) == []


@pytest.mark.parametrize("planted", PLANTED, ids=[planted.name for planted in PLANTED])
def test_a_planted_bug_shows_without_a_crash_only_where_the_table_says_so(
    host: Host, planted: PlantedSaver, tmp_path: Path
) -> None:
    found = complaints(host, planted.file, tmp_path)
    assert (found == []) == planted.undisturbed, found


def test_each_failure_has_at_least_two_planted_bugs_but_ranks_that_disagree() -> None:
    count = Counter(verdict for planted in PLANTED for verdict in planted.verdicts)
    wanted = {verdict: 2 for verdict in VERDICTS if verdict not in SAFE and verdict != "not-triggered"}
    wanted["ranks-disagree"] = 1
    assert {verdict: count[verdict] for verdict, least in wanted.items() if count[verdict] < least} == {}


def test_a_planted_bug_says_what_it_is_in_its_first_line() -> None:
    for planted in PLANTED:
        assert re.match(r'"""[^\n]+\."""\n', planted.file.read_text()), planted.file


ROW = 'source = "a"\nverdicts = ["hang"]\nmodel = "kill"\nfinding = "b"\ncrash = "c"\n'


@pytest.mark.parametrize(
    ("table", "message"),
    [
        pytest.param(f"[other]\n{ROW}", "other: there is no other.py", id="a row without its script"),
        pytest.param("", "saver.py is not in the table", id="a script without its row"),
        pytest.param(f"[saver]\n{ROW}extra = 1\n", "extra is unknown", id="a field that is unknown"),
        pytest.param(f"[saver]\n{ROW}".replace('"kill"', '"murder"'), "model is 'murder'; allowed: kill, ", id="model"),
        pytest.param(
            f"[saver]\n{ROW}".replace('"hang"', '"safe-old"'), "must list at least one of lost-work", id="safe"
        ),
        pytest.param(f"[saver]\n{ROW}".replace('["hang"]', "[]"), r"verdicts is \[\]", id="no verdict"),
        pytest.param(f"[saver]\n{ROW}undisturbed = 0\n", "undisturbed is 0", id="a flag that is a number"),
        pytest.param(
            f"[saver]\n{ROW}".replace('model = "kill"', 'trouble = "rain"'),
            "trouble is 'rain'; allowed: ",
            id="trouble",
        ),
        pytest.param(f"[saver]\n{ROW}trouble = 'slow'\n", "one of model", id="a crash and a trouble"),
        pytest.param("[saver]\n", "source is None", id="a row without fields"),
        pytest.param("saver = 3\n", "is 3; it must be a table", id="a row that is none"),
        pytest.param("[saver", "cannot be read", id="no TOML"),
    ],
)
def test_a_table_that_is_wrong_is_refused_with_the_place(table: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "saver.py").touch()
    (tmp_path / "expected.toml").write_text(table)
    with pytest.raises(HarnessError, match=message):
        read_table(tmp_path / "expected.toml")


def test_a_table_is_read_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "saver.py").touch()
    (tmp_path / "expected.toml").write_text(f"[saver]\n{ROW}undisturbed = false\n")
    assert read_table(tmp_path / "expected.toml") == [
        PlantedSaver(
            file=tmp_path / "saver.py",
            source="a",
            verdicts=("hang",),
            model="kill",
            finding="b",
            crash="c",
            undisturbed=False,
        )
    ]
