"""The page of one session."""

from __future__ import annotations

from pathlib import Path

from harness.kept_runs import REPORT_HTML
from harness.report.interval import DEFAULT_MTBF_S, advise
from harness.report.page.html import render, write_page
from harness.report.page.plot import make_plot
from harness.report.session import RESULTS, Session, coverage, load_session, median_of, never_tried, times_by_kind


def write_session_report(session_dir: Path, *, mtbf_s: float = DEFAULT_MTBF_S) -> Path:
    """Write report.html of the session in ``session_dir``, into it; returns its path.

    It links to the pages of those runs that have one.

    Raises:
        RecordError: it is no session directory, or cannot be written.
    """
    session = load_session(session_dir)
    pages = {run.directory for run in session.runs if (session_dir / run.directory / REPORT_HTML).is_file()}
    return write_page(session_dir / REPORT_HTML, session_page(session, session_dir.name, pages, mtbf_s=mtbf_s))


def session_page(session: Session, name: str, pages: set[str], *, mtbf_s: float = DEFAULT_MTBF_S) -> str:
    """The page's text.

    Args:
        pages: the directories of the runs that have a page of their own.
    """
    counts = {result: session.count(result) for result in RESULTS}
    save_s, restart_s = median_of(session.runs, "save_s"), median_of(session.runs, "restart_s")
    outcome = next((word for word in ("failed", "error", "unknown") if counts[word]), "passed")
    return render(
        "session.html",
        name=name,
        session=session,
        counts=counts,
        outcome=outcome if counts["passed"] or outcome != "passed" else "unknown",
        urgent=[run for run in session.runs if run.result in ("failed", "error", "unknown")],
        others=[run for run in session.runs if run.result in ("passed", "skipped")],
        pages=pages,
        coverage=coverage(session.runs),
        never_tried=never_tried(session.runs),
        plot=make_plot(times_by_kind(session.runs)),
        times=times_by_kind(session.runs),
        advice=advise(save_s, restart_s or 0.0, mtbf_s) if save_s else None,
    )
