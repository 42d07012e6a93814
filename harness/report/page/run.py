"""The page of one run."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.checks.base import Verdict
from harness.checks.records import listed
from harness.errors import RecordError
from harness.history import History, load_history
from harness.kept_runs import REPORT_HTML
from harness.report.checkpoints import foreign, looks
from harness.report.evidence import failures
from harness.report.interval import DEFAULT_MTBF_S, Advice, advise
from harness.report.measured import Measured, measure
from harness.report.packed import pack
from harness.report.page.html import plain, render, write_page
from harness.report.replay import replay_command
from harness.report.stored import StoredJudgement, load_verdicts
from harness.report.terminal import place
from harness.report.timeline import Moment, Timeline, make_timeline
from harness.report.trace import write_trace
from harness.wire import PHASES

NOT_JUDGED = "this run has not been judged"


def write_run_report(run_dir: Path, *, mtbf_s: float = DEFAULT_MTBF_S) -> Path:
    """Write report.html and trace.json of the run in ``run_dir``, into it; returns the page's path.

    Args:
        mtbf_s: the stated mean time between failures, for the advice on the checkpoint interval.

    Raises:
        RecordError: it is no run directory, or cannot be written.
    """
    history = load_history(run_dir)
    judged = stored_judgement(run_dir)
    timeline = make_timeline(history, judged)
    write_trace(history, timeline, run_dir)
    page = run_page(history, judged, timeline, run_dir, mtbf_s=mtbf_s)
    return write_page(run_dir / REPORT_HTML, page)


def stored_judgement(run_dir: Path) -> StoredJudgement:
    """What verdicts.json says; an unknown outcome if the run was broken off before it was judged."""
    try:
        return load_verdicts(run_dir)
    except RecordError as error:
        return StoredJudgement("unknown", NOT_JUDGED, (), (), (str(error),))


def run_page(
    history: History,
    judged: StoredJudgement,
    timeline: Timeline,
    run_dir: Path,
    *,
    mtbf_s: float = DEFAULT_MTBF_S,
) -> str:
    """The page's text."""
    by_name = {verdict.guarantee: verdict for verdict in judged.verdicts}
    blamed = [by_name[name] for name in judged.blamed if name in by_name]
    order = {"invalid": 0, "unknown": 1, "valid": 2, "not-applicable": 3}
    measured = measure(history, timeline)
    return render(
        "run.html",
        page_data(timeline),
        "timeline.js",
        plan=history.plan,
        plan_json=asdict(history.plan),
        outcome=history.outcome,
        judged=judged,
        blamed=blamed,
        verdicts=sorted(judged.verdicts, key=lambda verdict: order.get(verdict.outcome, 1)),
        summary=_summary(judged, blamed, timeline),
        place=place,
        timeline=timeline,
        phases=PHASES,
        measured=measured,
        num_launches=history.restarts + 1 if history.recorded else 0,
        advice=advice(measured, history, mtbf_s),
        looks=looks(history),
        foreign=foreign(history),
        failures=failures(history, run_dir),
        damaged=history.damaged,
        replay=replay_command(history.plan),
        recheck=f"python -m harness recheck {shlex.quote(str(run_dir))}",
        run_dir=str(run_dir),
    )


def _summary(judged: StoredJudgement, blamed: list[Verdict], timeline: Timeline) -> dict[str, Any]:
    """What a person wants to know first: what, where, when, and which line to open."""
    deviation = next((moment for moment in timeline.moments if moment.kind == "deviation"), None)
    fault = next((moment for moment in timeline.moments if moment.kind == "fault"), None)
    first = blamed[0] if blamed else None
    cause = judged.diagnosis[0] if judged.diagnosis else None
    where, what, line = "", "", ""
    if first is not None:
        what, where, line = f"{first.guarantee}: {first.reason}", place(first), first.file or ""
    if cause is not None and not where:
        who = listed(cause.named) if cause.named else None
        parts = (("", who), ("step", cause.step), ("", cause.phase), ("launch", cause.restart))
        where = ", ".join(f"{name} {value}".strip() for name, value in parts if value is not None)
    if cause is not None and not line and cause.event is not None:
        line = cause.event.where
    at = deviation or fault
    return {
        "what": what or (judged.problems[0] if judged.problems else ""),
        "promise": "" if first is None else first.promise,
        "cause": "" if cause is None else _who(cause.named, cause.detail),
        "where": where,
        "at": at,
        "line": line or ("" if at is None else at.where),
    }


def _who(ranks: tuple[int, ...], detail: str) -> str:
    who = listed(ranks)
    return detail if not ranks or detail.startswith(f"{who} ") else f"{who}: {detail}"


def advice(measured: Measured, history: History, mtbf_s: float) -> Advice | None:
    """The interval advice, if the run saved; a recovery that was not seen counts as 0."""
    if not measured.save_s:
        return None
    recovery_s = measured.restart_s or 0.0
    steps = history.plan.save_every
    used_s = steps * measured.step_s if steps and measured.step_s else None
    return advise(measured.save_s, recovery_s, mtbf_s, used_s)


def page_data(timeline: Timeline) -> dict[str, Any]:
    """What the page's script draws; times in seconds."""
    quantum_s, marks = pack(timeline.processes)
    return {
        "ranks": timeline.num_ranks,
        "end": timeline.duration_s,
        "phases": PHASES,
        "quantum": quantum_s,
        "processes": [
            {
                "rank": process.rank,
                "restart": process.restart,
                "begin": round(process.begin_s, 6),
                "end": round(process.end_s, 6),
                "replayed": process.replayed,
                "ended": plain(process.ended),
                "marks": packed,
            }
            for process, packed in zip(timeline.processes, marks, strict=True)
        ],
        "moments": [_moment(moment) for moment in timeline.moments],
        "bands": [asdict(band) for band in timeline.bands],
        "saves": [[round(save.begin_s, 6), save.end_s and round(save.end_s, 6), save.step] for save in timeline.saves],
    }


def _moment(moment: Moment) -> dict[str, Any]:
    return {**asdict(moment), "at_s": round(moment.at_s, 6), "text": plain(moment.text)}
