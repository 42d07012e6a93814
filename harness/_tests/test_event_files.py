"""A record that is too large to be kept is judged as if it were kept, and what is read of it is what json reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import harness.event_files
import harness.history
from harness._tests.histories import Story, baseline, digests, run
from harness._tests.stored_runs import killed_and_recovered, write_history
from harness.checks.sent import calls
from harness.event_files import read_processes
from harness.events import VIEWS, Process
from harness.expect import judge
from harness.faults import At
from harness.faults.kill import Kill
from harness.history import History, load_history
from harness.wire import Event, Kind

KILL = Kill(rank=1, at=At(step=8, phase="backward"))
HEAD = '"t":1,"kind":"phase","step":1,"phase":"init"'


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], History]:
    """Load a run directory as if its record were large."""

    def load(run_dir: Path) -> History:
        with monkeypatch.context() as patched:
            patched.setattr(harness.history, "LARGE_BYTES", 0)
            history = load_history(run_dir)
        assert history.files is not None
        return history

    return load


def healthy() -> Story:
    return run(ranks=3).start().updates(1, 14).leave()


def one_skips_a_collective() -> Story:
    story = healthy()
    return story.drop(Kind.COLLECTIVE, rank=2, step=9)


def one_has_other_parameters() -> Story:
    return healthy().edit(Kind.UPDATE, rank=1, step=5, data=digests(4))


def one_uses_a_sample_again() -> Story:
    return healthy().edit(Kind.UPDATE, rank=1, step=5, data={"ids": [0, 1]})


def one_leaves_an_update_out() -> Story:
    return healthy().drop(Kind.UPDATE, rank=1, step=5)


def one_has_an_update_without_batches() -> Story:
    story = healthy()
    for event in story.events:
        if (event["kind"], event["rank"], event["step"]) == (Kind.UPDATE, 1, 5):
            del event["data"]["batches"]
    return story


def one_is_silent() -> Story:
    story = healthy()
    story.events = [event for event in story.events if event["rank"] != 1]
    return story


def resumed() -> Story:
    return killed_and_recovered(run(ranks=3, faults=[KILL], expect="recovers", max_restarts=1))


STORIES: dict[str, Callable[[], Story]] = {
    "healthy": healthy,
    "one rank skips a collective": one_skips_a_collective,
    "one rank has other parameters after an update": one_has_other_parameters,
    "one rank uses a sample again": one_uses_a_sample_again,
    "one rank leaves an update out": one_leaves_an_update_out,
    "an update lacks a field": one_has_an_update_without_batches,
    "one rank left no record": one_is_silent,
    "a rank is killed and all resume": resumed,
}


@pytest.mark.parametrize("tell", STORIES.values(), ids=STORIES)
@pytest.mark.parametrize("with_baseline", [True, False], ids=["with a baseline", "without one"])
def test_a_large_record_is_judged_as_a_small_one(
    tell: Callable[[], Story], with_baseline: bool, tmp_path: Path, large: Callable[[Path], History]
) -> None:
    history = tell().history()
    run_dir = write_history(history, tmp_path / "run")
    known = baseline(ranks=history.plan.ranks) if with_baseline else None
    whole, piecewise = judge(load_history(run_dir), known), judge(large(run_dir), known)
    for small, big in zip(whole.verdicts, piecewise.verdicts, strict=True):
        assert _without_traceback(big.to_json()) == _without_traceback(small.to_json())
    assert (piecewise.headline, piecewise.problems) == (whole.headline, whole.problems)
    assert piecewise.diagnosis == whole.diagnosis


def _without_traceback(verdict: dict[str, object]) -> str:
    return json.dumps({**verdict, "seen": {k: v for k, v in verdict["seen"].items() if k != "traceback"}})  # type: ignore[attr-defined]


def test_a_view_that_cannot_be_made_of_a_record_spoils_no_other(
    tmp_path: Path, large: Callable[[Path], History], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(process: Process) -> tuple[int]:
        return (process.of(Kind.UPDATE)[4].data["newer"],)

    monkeypatch.setattr(harness.event_files, "VIEWS", [broken, *VIEWS])
    history = large(write_history(healthy().history(), tmp_path / "run"))
    with pytest.raises(KeyError, match="newer"):
        history.each(broken)
    verdicts = {v.guarantee: v for v in judge(history, None).verdicts}
    assert verdicts["ReplicasAgree"].outcome == verdicts["CollectivesAgree"].outcome == "valid"


@pytest.mark.parametrize("kinds", [None, Kind.UPDATE, Kind.EXIT, (Kind.START, Kind.PHASE), (Kind.LOAD, Kind.STATE)])
@pytest.mark.parametrize("rank", [None, 1, 7])
@pytest.mark.parametrize("restart", [None, 0, 1])
@pytest.mark.parametrize("step", [None, 3])
def test_the_same_events_are_found(
    kinds: Kind | tuple[Kind, ...] | None,
    rank: int | None,
    restart: int | None,
    step: int | None,
    tmp_path: Path,
    large: Callable[[Path], History],
) -> None:
    run_dir = write_history(resumed().history(), tmp_path / "run")
    whole, piecewise = load_history(run_dir), large(run_dir)
    asked = {"rank": rank, "restart": restart, "step": step}
    found = piecewise.of(kinds, **asked)
    assert found == whole.of(kinds, **asked)
    wanted = {kinds} if isinstance(kinds, str) else kinds
    assert found == [e for e in whole.events if _is_asked(e, asked) and (wanted is None or e.kind in wanted)]
    assert (piecewise.restarts, piecewise.recorded, piecewise.last_ns) == (
        whole.restarts,
        whole.recorded,
        whole.last_ns,
    )
    assert [piecewise.count(kind) for kind in Kind] == [whole.count(kind) for kind in Kind]


def _is_asked(event: Event, asked: dict[str, int | None]) -> bool:
    return all(value is None or getattr(event, name) == value for name, value in asked.items())


def test_of_a_large_record_no_event_of_an_update_is_kept(tmp_path: Path, large: Callable[[Path], History]) -> None:
    short = large(write_history(run(ranks=3).start().updates(1, 6).leave().history(), tmp_path / "short"))
    long = large(write_history(run(ranks=3).start().updates(1, 60).leave().history(), tmp_path / "long"))
    epochs = [e for e in long.events if e.kind in (Kind.LOADER, Kind.LOADER_END)]
    assert len([e for e in long.events if e not in epochs]) == len(
        [e for e in short.events if e.kind not in (Kind.LOADER, Kind.LOADER_END)]
    )
    assert long.count(Kind.UPDATE) == 10 * short.count(Kind.UPDATE)


def test_what_ranks_have_in_common_is_kept_once(tmp_path: Path, large: Callable[[Path], History]) -> None:
    history = large(write_history(healthy().history(), tmp_path / "run"))
    first, *others = history.each(calls).values()
    assert first.by_group
    assert all(other.by_group is first.by_group for other in others)


LINES = {
    "not a number": f'{{{HEAD},"x":NaN}}',
    "beyond 64 bits": f'{{{HEAD},"x":123456789012345678901234567890}}',
    "half a surrogate pair": f'{{{HEAD},"x":"\\ud800"}}',
    "two objects in one line, and an empty line": f"{{{HEAD}}}{{{HEAD}}}\n",
    "two objects in one line, and a blank line": f"{{{HEAD}}}{{{HEAD}}}\n ",
    "a blank before it": f" {{{HEAD}}}",
    "a name twice": f'{{{HEAD},"x":1,"x":2}}',
    "no object": "[1]",
    "the end of one line and the start of the next": f"{{{HEAD}\n,{HEAD}}}",
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_record_is_read_as_json_reads_each_of_its_lines(line: str, tmp_path: Path) -> None:
    lines = [f"{{{HEAD}}}", *line.split("\n"), f'{{{HEAD},"last":1}}']
    path = tmp_path / "rank-0" / "events-0.jsonl"
    path.parent.mkdir()
    path.write_text("\n".join(lines) + "\n")
    damaged: list[str] = []
    (process,) = read_processes(tmp_path, damaged)
    expected: dict[int, dict[str, object]] = {}
    for seq, text in enumerate(lines, start=1):
        try:
            raw = json.loads(text)
        except ValueError:
            continue
        if isinstance(raw, dict):
            expected[seq] = {name: value for name, value in raw.items() if name not in ("t", "kind", "step", "phase")}
    assert repr({event.seq: event.data for event in process.events}) == repr(expected)
    assert len(damaged) == len(lines) - len(expected)
