"""Other people's savers, unmodified: a crash does to each what workloads/savers/third_party/expected.toml says.

They need the extra ``savers``: ``tox -e savers``.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.crashstates.examine import examine
from harness.crashstates.explore import State
from harness.crashstates.models import MODEL_NAMES
from harness.crashstates.ranks.session import Host
from harness.crashstates.record.tracing import why_unavailable
from harness.crashstates.verdict import SAFE, VERDICTS, Verdict
from workloads.savers.third_party import FOLDER, Expected, load_expected

EXPECTED = load_expected()
every_saver = pytest.mark.parametrize("expected", EXPECTED.values(), ids=EXPECTED)


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    if (reason := why_unavailable()) is not None:
        pytest.skip(reason)
    with Host(preload=("torch",)) as host:
        yield host


@pytest.mark.timeout(600)  # on a machine that does nothing else each takes less than 30 s, which the benchmark shows
@every_saver
def test_a_crash_does_to_it_what_is_expected(expected: Expected, host: Host, tmp_path: Path) -> None:
    if expected.missing:
        pytest.skip(f"{', '.join(expected.missing)} not installed: pip install 'torch-recovery-harness[savers]'")
    weakest: dict[Verdict, int] = {}

    def note(state: State, verdict: Verdict) -> None:
        model = MODEL_NAMES.index(state.situation.model)
        weakest[verdict] = min(model, weakest.get(verdict, model))

    with tempfile.TemporaryDirectory(dir=_elsewhere(expected) or tmp_path) as name:
        root = Path(name, "checkpoints")
        root.mkdir()
        found = examine(expected.path, root, host=host, most=expected.most, on_state=note)
    assert found.problems == []
    assert {v: MODEL_NAMES[i] for v, i in weakest.items() if v not in SAFE} == expected.weakest
    assert found.outcome == "broken"


def _elsewhere(expected: Expected) -> Path | None:
    if expected.directory is None:
        return None
    place = Path(expected.directory)
    if not os.access(place, os.W_OK):
        pytest.skip(f"{place} cannot be written to; it is to be another file system than temporary files are on")
    if place.stat().st_dev == Path(tempfile.gettempdir()).stat().st_dev:
        pytest.skip(f"{place} is the file system that temporary files are on; set TMPDIR to another")
    return place


def test_every_saver_has_its_expectation_and_every_expectation_its_saver() -> None:
    assert {expected.path for expected in EXPECTED.values()} == set(FOLDER.glob("*.py")) - {FOLDER / "__init__.py"}


@every_saver
def test_an_expectation_is_spelled_right_and_says_why(expected: Expected) -> None:
    assert set(expected.weakest) <= set(VERDICTS) - SAFE
    assert set(expected.weakest.values()) <= set(MODEL_NAMES)
    assert expected.what
    assert all("#" in thread for thread in expected.upstream)
