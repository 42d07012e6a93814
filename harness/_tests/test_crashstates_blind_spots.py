"""What another tool for the same purpose (ckpt-chaos 0.1.8) lets pass, and takes 8 to 14 s a point for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.crashstates.examine import Examination, examine
from harness.crashstates.positions import WRITES
from harness.crashstates.ranks.session import Host
from harness.crashstates.record.tracing import why_unavailable
from harness.crashstates.testbed import Testbed
from harness.crashstates.wording import report

trouble = why_unavailable()
pytestmark = pytest.mark.skipif(trouble is not None, reason=str(trouble))

PLANTED = Path(__file__).parents[2] / "workloads" / "planted" / "savers"
ITS_POINT_S = 13.6  # on two ranks


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with Host(["torch"]) as host:
        yield host


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "checkpoints").mkdir()
    return tmp_path / "checkpoints"


def test_a_point_at_which_the_process_did_not_die_is_no_pass(host: Host, root: Path) -> None:
    with Testbed(PLANTED / "leftover_is_in_the_way.py", root, host=host) as bed:
        (write, *_) = bed.positions(WRITES)
        inject = f"{write.call}:signal=SIGKILL:when={{}}"
        attempts = [bed.attempt("SIGKILL", write, inject=inject.format(k), has_fired=_has_died) for k in (1, 999)]
    assert [attempt.verdict for attempt in attempts] == ["safe-old", "not-triggered"]


def _has_died(call: object) -> bool:
    return getattr(call, "result", 0) is None


@pytest.mark.parametrize(
    ("saver", "verdict", "missing"),
    [
        pytest.param("forgets_the_directory", "lost-ack", "fsync of the directory", id="a rename that is not synced"),
        pytest.param("replaces_without_fsync", "wrong-state", "fsync of last.tmp", id="torch.save that is not synced"),
    ],
)
def test_what_was_not_synced_is_not_durable(host: Host, root: Path, saver: str, verdict: str, missing: str) -> None:
    found = examine(PLANTED / f"{saver}.py", root, host=host)
    assert found.outcome == "broken"
    assert verdict in found.verdicts, found.verdicts
    assert f"missing: {missing}" in report(found)


def test_thousands_of_states_of_two_ranks_take_less_than_one_point_of_its(host: Host, root: Path) -> None:
    started_s = time.monotonic()
    found: Examination = examine(PLANTED / "marks_before_the_others_wrote.py", root, host=host)
    took_s = time.monotonic() - started_s
    assert found.outcome == "broken"
    crashes = sum(share.tried for share in found.shares)
    assert crashes > 1000
    assert took_s / crashes < ITS_POINT_S / 100
