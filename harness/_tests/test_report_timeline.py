"""The timeline of a run, what is measured on it, and its marks as a short string."""

from __future__ import annotations

import pytest

from harness._tests.histories import Story, baseline, run
from harness._tests.stored_runs import killed_and_recovered
from harness.expect import judge
from harness.faults import At
from harness.faults.kill import Kill
from harness.history import History
from harness.report.measured import measure
from harness.report.packed import DIGITS, FIRST_QUANTUM_S, pack, pack_marks
from harness.report.stored import StoredJudgement
from harness.report.timeline import Mark, Timeline, make_timeline
from harness.report.words import duration, ranges
from harness.wire import PHASES, Kind

KILL = Kill(kind="kill", rank=1, at=At(step=8, phase="backward"))


def judged(history: History) -> StoredJudgement:
    found = judge(history, baseline())
    return StoredJudgement(
        found.outcome, found.headline, found.verdicts, tuple(v.guarantee for v in found.blamed), (), found.diagnosis
    )


def timeline_of(story: Story, **end: object) -> tuple[History, Timeline]:
    history = story.history(**end)  # type: ignore[arg-type]
    return history, make_timeline(history, judged(history))


@pytest.fixture(scope="module")
def recovered() -> tuple[History, Timeline]:
    return timeline_of(killed_and_recovered(run(faults=[KILL], max_restarts=1)))


def test_each_process_has_its_steps_its_end_and_what_it_did_again(recovered: tuple[History, Timeline]) -> None:
    found = [(p.rank, p.restart, p.steps, p.replayed, p.ended) for p in recovered[1].processes]
    assert found == [
        (0, 0, (1, 7), None, "RuntimeError"),
        (0, 1, (6, 12), (6, 7), ""),
        (1, 0, (1, 7), None, "SIGKILL"),
        (1, 1, (6, 12), (6, 7), ""),
    ]


def test_processes_of_one_rank_follow_each_other_in_time(recovered: tuple[History, Timeline]) -> None:
    first, second = recovered[1].processes[:2]
    assert 0 <= first.begin_s < first.end_s < second.begin_s < second.end_s <= recovered[1].duration_s


def test_the_moments_tell_the_story_in_order(recovered: tuple[History, Timeline]) -> None:
    moments = recovered[1].moments
    assert [m.kind for m in moments] == ["launch", "fault", "end", "error", "launch", "load", "recovered", "done"]
    assert "fault kill fires on rank 1" in moments[1].text
    assert "rank 1 ends there: SIGKILL" in moments[2].text
    assert "rank 0: RuntimeError in a collective" in moments[3].text
    assert "ranks 0, 1 resume from the checkpoint of step 5" in moments[5].text
    assert "step 8" in moments[6].text


def test_the_fault_is_felt_until_the_first_new_update(recovered: tuple[History, Timeline]) -> None:
    history, timeline = recovered
    (band,) = timeline.bands
    new = next(e for e in history.of(Kind.UPDATE) if e.step == 8)
    assert (band.ranks, band.is_recovered) == ((1,), True)
    assert band.end_s == pytest.approx(new.t_ns / 1e9)


def test_one_save_of_all_ranks_is_one_save(recovered: tuple[History, Timeline]) -> None:
    assert [(save.step, save.restart, save.end_s is not None) for save in recovered[1].saves] == [
        (5, 0, True),
        (10, 1, True),
    ]


def test_what_the_clock_says_is_measured_from_the_fault(recovered: tuple[History, Timeline]) -> None:
    history, timeline = recovered
    measured = measure(history, timeline)
    (fault,) = history.of(Kind.FAULT)
    error = history.of(Kind.EXCEPTION)[0]
    first, new = (next(e for e in history.of(Kind.UPDATE, restart=1) if e.step == step) for step in (6, 8))
    assert measured.detection_s == pytest.approx((error.t_ns - fault.t_ns) / 1e9)
    assert measured.recovery_s == pytest.approx((new.t_ns - fault.t_ns) / 1e9)
    assert measured.restart_s == pytest.approx((first.t_ns - fault.t_ns) / 1e9)
    assert (measured.lost_steps, measured.resumed_step) == (2, 5)
    assert measured.save_s is not None
    assert measured.save_s > 0


def test_a_run_without_a_fault_has_no_times_of_one() -> None:
    history, timeline = timeline_of(run().start().updates(1, 12).leave())
    measured = measure(history, timeline)
    assert (measured.detection_s, measured.recovery_s, measured.lost_steps) == (None, None, 0)
    assert timeline.bands == ()


def test_the_first_deviation_is_the_line_of_the_first_broken_guarantee() -> None:
    story = run().start().updates(1, 12).leave().edit(Kind.UPDATE, rank=1, step=7, data={"params": "others"})
    _, timeline = timeline_of(story)
    (deviation,) = (m for m in timeline.moments if m.kind == "deviation")
    assert "step 7" in deviation.text
    assert "ReplicasAgree" in deviation.text
    assert deviation.where.startswith("rank-")


def test_a_process_that_was_ended_while_it_hung_lasts_until_then() -> None:
    story = run().start().updates(1, 3)
    story.begin(0, 4)
    history, timeline = timeline_of(story.ended_by_launcher(), timed_out=True)
    assert {p.end_s for p in timeline.processes} == {history.outcome.duration_s}
    assert "deadline" in timeline.moments[-1].text


def test_a_run_without_any_record_has_an_end_and_nothing_else() -> None:
    _, timeline = timeline_of(run(), exit_code=1)
    assert (timeline.processes, [m.kind for m in timeline.moments]) == ((), ["done"])


# ---------------------------------------------------------------------------------------------------- short strings


def unpacked(text: str, quantum_s: float, begin_s: float) -> list[Mark]:
    """What the page's script does, written once more: (seconds, name, step of the last update)."""
    found: list[Mark] = []
    at = done = i = 0

    def number() -> int:
        nonlocal i
        total, scale = 0, 1
        while True:
            digit = DIGITS.index(text[i])
            i += 1
            total += digit % 32 * scale
            scale *= 32
            if digit < 32:
                return total

    while i < len(text):
        letter = text[i]
        i += 1
        at += number()
        if letter == "u":
            done += 1
        elif letter == "U":
            done = number()
        name = {"c": "collective", "u": "update", "U": "update"}.get(letter) or PHASES[ord(letter) - ord("A")]
        found.append((begin_s + at * quantum_s, name, done))
    return found


def test_marks_come_back_from_their_string(recovered: tuple[History, Timeline]) -> None:
    for process in recovered[1].processes:
        packed = pack_marks(process.marks, process.begin_s, FIRST_QUANTUM_S)
        back = unpacked(packed, FIRST_QUANTUM_S, process.begin_s)
        assert [name for _, name, _ in back] == [name for _, name, _ in process.marks]
        assert [at for at, _, _ in back] == pytest.approx([at for at, _, _ in process.marks], abs=2 * FIRST_QUANTUM_S)
        steps = [(name, step) for _, name, step in back if name == "update"]
        assert steps == [(name, step) for _, name, step in process.marks if name == "update"]


def test_where_the_string_would_be_too_long_what_is_near_together_is_merged() -> None:
    _, timeline = timeline_of(run().start().updates(1, 60).leave())
    fine, full = pack(timeline.processes)
    limit = sum(map(len, full)) // 3
    coarse, short = pack(timeline.processes, max_chars=limit)
    assert sum(map(len, short)) <= limit
    assert coarse > fine
    last = [mark for mark in unpacked(short[0], coarse, timeline.processes[0].begin_s) if mark[1] == "update"][-1]
    assert last[2] == 60  # steps keep their numbers
    done_s = next(at for at, name, step in timeline.processes[0].marks if (name, step) == ("update", 60))
    assert last[0] == pytest.approx(done_s, abs=coarse)


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        pytest.param([1], "rank 1", id="one"),
        pytest.param([3, 0], "ranks 0, 3", id="two apart"),
        pytest.param([0, 1], "ranks 0, 1", id="two together"),
        pytest.param([*range(64), 70], "ranks 0-63, 70", id="many"),
    ],
)
def test_ranks_in_words(ranks: list[int], words: str) -> None:
    assert ranges(ranks) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "-"), (0.0123, "12.3 ms"), (0.9999, "1 s"), (4.561, "4.56 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")],
)
def test_durations_in_words(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words
