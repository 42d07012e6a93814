"""One HTML file per run and one per session, with all it needs inside: no request leaves the page.

html        templates, escaping, the policy that forbids everything but the page's own script
run         the page of a run
session     the page of a session
*.html, page.css, *.js      what they are made of
"""

from __future__ import annotations

from pathlib import Path

from harness.errors import RecordError
from harness.report.interval import DEFAULT_MTBF_S
from harness.report.page.run import write_run_report
from harness.report.page.session import write_session_report
from harness.wire import PLAN_JSON

__all__ = ["write_report_page", "write_run_report", "write_session_report"]


def write_report_page(directory: Path, *, mtbf_s: float = DEFAULT_MTBF_S) -> Path:
    """Write the page of what ``directory`` is, a run or a session; of a session also those of its runs.

    Args:
        mtbf_s: the stated mean time between failures, for the advice on the checkpoint interval.

    Returns:
        the path of the page of ``directory`` itself.

    Raises:
        RecordError: it is neither, or cannot be written.
    """
    if not mtbf_s > 0:
        raise RecordError(f"a failure every {mtbf_s:g} s: the mean time between failures must be above 0")
    if (directory / PLAN_JSON).is_file():
        return write_run_report(directory, mtbf_s=mtbf_s)
    for plan in sorted(directory.glob(f"*/{PLAN_JSON}")):
        try:
            write_run_report(plan.parent, mtbf_s=mtbf_s)
        except RecordError:  # a run that was broken off; the session's page says so
            continue
    return write_session_report(directory, mtbf_s=mtbf_s)
