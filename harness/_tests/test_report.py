"""The text of a judgement, and its JSON, written and read back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.checks.base import Outcome, Verdict
from harness.checks.cause import Cause
from harness.errors import RecordError
from harness.expect import Judgement
from harness.report.stored import load_verdicts, write_report, write_verdicts
from harness.report.terminal import MAX_BLAMED, WIDTH, judgement_text, place, verdict_table
from harness.wire import Event

RUN_DIR = Path(".chaos/runs/20260301-120000-4242/scenarios.smoke.kill-cpu")
REPLAY = "pytest scenarios/smoke/kill.toml::cpu --launcher warm --chaos-seed 7"

REPLICAS = Verdict(
    guarantee="ReplicasAgree",
    outcome="invalid",
    promise="after each update, parameters and optimizer state are byte-equal on all ranks",
    reason="after update 12 the parameters of rank 1 differ from those of rank 0",
    rank=1,
    step=12,
    restart=0,
    operation="all_reduce",
    seen={"rank 0": "9f3c", "rank 1": "77aa", "steps": [11, 12]},
    file="rank-1/events-0.jsonl:42",
)
BASELINE = Verdict(guarantee="EndsLikeBaseline", outcome="unknown", promise="...", reason="no baseline is on record")
IN_TIME = Verdict(guarantee="EndsInTime", outcome="valid", reason="ended after 0.6 s")
CAUSE = Cause(
    rank=1,
    restart=0,
    step=12,
    phase="backward",
    operation="all_reduce",
    how="skipped",
    detail="rank 1 did not issue the all_reduce of update 12",
    event=Event(1, 0, 42, 10, "collective", 12, "backward", {"op": "all_reduce"}),
)
FAILED = Judgement(
    outcome="failed",
    headline=f"ReplicasAgree is broken (rank 1, step 12): {REPLICAS.reason}",
    verdicts=(IN_TIME, REPLICAS, BASELINE),
    blamed=(REPLICAS, BASELINE),
    problems=("the job should end well, but its exit code is 1",),
    diagnosis=(CAUSE,),
)


def test_a_fault_free_run_that_is_nothing_to_compare_with_is_told_and_where_it_is(tmp_path: Path) -> None:
    doubted = replace(FAILED, doubt="two runs without faults differ in params", baseline_dir="/store/b/run-2")
    lines = judgement_text(doubted, RUN_DIR).splitlines()
    assert "  doubt    two runs without faults differ in params" in lines
    assert "  baseline /store/b/run-2" in lines
    write_verdicts(doubted, tmp_path)
    assert load_verdicts(tmp_path).doubt == doubted.doubt


def test_a_failure_reads_from_the_broken_promise_to_the_commands() -> None:
    assert judgement_text(FAILED, RUN_DIR, title="rank 1 skips a step", replay=REPLAY).splitlines() == [
        "ReplicasAgree is broken (rank 1, step 12): after update 12 the parameters of rank 1 differ from",
        "those of rank 0",
        "  title    rank 1 skips a step",
        "  promise  after each update, parameters and optimizer state are byte-equal on all ranks",
        "  where    rank 1, step 12, all_reduce, restart 0",
        "  seen     rank 0 = 9f3c",
        "           rank 1 = 77aa",
        "           steps = [11, 12]",
        f"  open     {RUN_DIR}/rank-1/events-0.jsonl:42",
        "",
        "EndsLikeBaseline is unknown: no baseline is on record",
        "  promise  ...",
        "",
        "  problem  the job should end well, but its exit code is 1",
        "  cause    launch 0, rank 1: rank 1 did not issue the all_reduce of update 12",
        "           (rank-1/events-0.jsonl:42)",
        f"  run      {RUN_DIR}",
        f"  replay   {REPLAY}",
        f"  recheck  python -m harness recheck {RUN_DIR}",
    ]


@pytest.mark.parametrize(
    ("exit_code", "said", "lines"),
    [
        (
            2,
            "a warning\nusage: train.py\n\n  [--out DIR]\ntrain.py: error: --out is missing\n",
            ["usage: train.py", "  [--out DIR]", "train.py: error: --out is missing"],
        ),
        (2, "", []),
        (2, None, []),
        (0, "a warning\n", []),
    ],
)
def test_a_script_that_left_by_itself_has_the_last_word(
    tmp_path: Path, exit_code: int, said: str | None, lines: list[str]
) -> None:
    cause = replace(CAUSE, how="exit", exit_code=exit_code, detail=f"left with exit code {exit_code}")
    path = tmp_path / "rank-1" / "stderr-0.txt"
    path.parent.mkdir()
    if said is not None:
        path.write_text(said)
    shown = judgement_text(replace(FAILED, diagnosis=(cause,)), tmp_path).splitlines()
    start = shown.index("those of rank 0") + 1  # the end of the headline
    about_it = [f"  stderr   {path}", *(f"           {line}" for line in lines)] if lines else []
    assert shown[start : start + len(about_it)] == about_it
    assert not [line for line in shown[start + len(about_it) :] if "stderr" in line or "warning" in line]


def test_of_several_ranks_that_left_by_themselves_the_first_has_the_last_word(tmp_path: Path) -> None:
    path = tmp_path / "rank-2" / "stderr-0.txt"
    path.parent.mkdir()
    path.write_text("train.py: error: --out is missing\n")
    cause = replace(CAUSE, rank=None, ranks=(2, 3), how="exit", exit_code=2, detail="left with exit code 2")
    assert f"  stderr   {path}" in judgement_text(replace(FAILED, diagnosis=(cause,)), tmp_path).splitlines()


def test_a_failure_names_its_page_beside_the_run() -> None:
    page = RUN_DIR / "report.html"
    lines = judgement_text(FAILED, RUN_DIR, page=page).splitlines()
    assert lines.index(f"  page     {page}") + 1 == lines.index(f"  run      {RUN_DIR}")


def test_what_is_unknown_is_headed_so() -> None:
    judgement = replace(FAILED, outcome="unknown", headline="FaultFired is unknown: " + "it never fired " * 9)
    first, *_ = lines = judgement_text(judgement, Path("run")).splitlines()
    assert first.startswith("UNKNOWN: FaultFired is unknown: it never")
    assert max(map(len, lines)) <= WIDTH


def test_a_problem_that_is_no_guarantee_is_said_once() -> None:
    problem = "the job should end well, but its exit code is 1"
    judgement = replace(FAILED, headline=problem, blamed=(), diagnosis=())
    assert judgement_text(judgement, RUN_DIR).count(problem) == 1


def test_all_but_the_first_broken_promises_are_only_named() -> None:
    many = tuple(replace(REPLICAS, guarantee=f"Promise{number}") for number in range(MAX_BLAMED + 2))
    text = judgement_text(replace(FAILED, blamed=many), RUN_DIR)
    assert f"  also     Promise{MAX_BLAMED} (invalid), Promise{MAX_BLAMED + 1} (invalid)" in text.splitlines()


def test_prose_fits_the_screen_and_paths_are_never_cut() -> None:
    long_dir = Path("store") / ("x" * 120)
    long_reason = "the parameters of rank 1 differ " * 20
    verdict = replace(REPLICAS, reason=long_reason, promise="never lost " * 30, seen={"ids": list(range(900))})
    judgement = replace(FAILED, headline=f"X is broken: {long_reason}", blamed=(verdict,), problems=(long_reason,))
    for line in judgement_text(judgement, long_dir, title="a long title " * 20).splitlines():
        assert len(line) <= WIDTH or str(long_dir) in line
    assert f"{long_dir}/rank-1/events-0.jsonl:42" in judgement_text(judgement, long_dir)


def test_long_values_are_cut_and_say_so() -> None:
    text = judgement_text(replace(FAILED, blamed=(replace(REPLICAS, seen={"ids": "7" * 5000}),)), RUN_DIR)
    assert "(5000 characters)" in text
    assert len(text) < 3000


def test_a_run_directory_with_a_blank_is_quoted_in_the_command() -> None:
    assert "python -m harness recheck 'my store/run'" in judgement_text(FAILED, Path("my store/run"))


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        pytest.param(REPLICAS, "rank 1, step 12, all_reduce, restart 0", id="all that there is"),
        pytest.param(
            replace(REPLICAS, rank=0, step=0, operation=None), "rank 0, step 0, restart 0", id="zeros are places"
        ),
        pytest.param(BASELINE, "", id="nothing known"),
    ],
)
def test_place(verdict: Verdict, expected: str) -> None:
    assert place(verdict) == expected


def test_the_table_gives_a_reason_wherever_a_guarantee_was_not_found_to_hold() -> None:
    assert verdict_table(FAILED).splitlines() == [
        "  EndsInTime        valid",
        "  ReplicasAgree     invalid         after update 12 the parameters of rank 1 differ from those of",
        "                                    rank 0",
        "  EndsLikeBaseline  unknown         no baseline is on record",
    ]


def test_verdicts_survive_the_trip_through_json(tmp_path: Path) -> None:
    write_verdicts(FAILED, tmp_path)
    stored = load_verdicts(tmp_path)
    assert stored.verdicts == FAILED.verdicts
    assert stored.blamed == ("ReplicasAgree", "EndsLikeBaseline")
    assert (stored.outcome, stored.headline, stored.problems) == (FAILED.outcome, FAILED.headline, FAILED.problems)
    assert stored.diagnosis == FAILED.diagnosis
    cause = json.loads((tmp_path / "verdicts.json").read_text())["diagnosis"][0]
    assert (cause["rank"], cause["how"], cause["event"]["seq"]) == (1, "skipped", 42)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="no file"),
        pytest.param('{"outcome": "pas', id="half a file"),
        pytest.param("[]", id="another kind of JSON"),
        pytest.param('{"outcome": "passed", "headline": "", "verdicts": [{"x": 1}]}', id="an unknown field"),
    ],
)
def test_damaged_verdicts_name_the_file_and_the_cure(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "verdicts.json").write_text(content)
    with pytest.raises(RecordError, match=r"verdicts\.json: no readable verdicts .*python -m harness recheck"):
        load_verdicts(tmp_path)


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"gone/verdicts\.json: cannot be written"):
        write_verdicts(FAILED, tmp_path / "gone")


def test_values_that_json_does_not_know_are_written_as_text(tmp_path: Path) -> None:
    odd = replace(REPLICAS, seen={"where": Path("a/b")})
    write_verdicts(replace(FAILED, verdicts=(odd,)), tmp_path)
    assert load_verdicts(tmp_path).verdicts[0].seen == {"where": "a/b"}


def test_a_report_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_report(path, {"seed": 7}, [{"test": "a"}])
    write_report(path, {"seed": 8}, [])
    assert json.loads(path.read_text()) == {"seed": 8, "results": []}
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.parametrize("outcome", ["valid", "invalid", "unknown", "not-applicable"])
def test_every_verdict_has_words(outcome: Outcome) -> None:
    verdict = replace(REPLICAS, outcome=outcome)
    text = judgement_text(replace(FAILED, headline="x", blamed=(verdict,)), RUN_DIR)
    assert f"ReplicasAgree {outcome}" not in text
    assert "ReplicasAgree " in text
