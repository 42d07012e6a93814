"""What pytest prints of scenarios, and the session's report.json."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from harness.errors import RecordError
from harness.plugin.chaos import nights_of
from harness.plugin.items import ScenarioItem
from harness.plugin.options import as_typed, session_dir, store_dir

_SUMMING_UP: pytest.StashKey[bool] = pytest.StashKey()
_LETTERS = {"PASSED": ".", "FAILED": "F", "UNKNOWN": "U", "ERROR": "E", "SKIPPED": "s"}


def pytest_report_collectionfinish(config: pytest.Config, items: Iterable[pytest.Item]) -> str | None:
    """The header: not printed earlier, since most sessions have no scenario and shall not be bothered."""
    return _header(config) if any(isinstance(item, ScenarioItem) for item in items) else None


def pytest_report_teststatus(
    report: pytest.CollectReport | pytest.TestReport, config: pytest.Config
) -> tuple[str, str, str] | None:
    """One line a scenario, with outcome and time, also without -v."""
    if not isinstance(report, pytest.TestReport):
        return None
    properties = dict(report.user_properties)
    if report.when == "call" and "outcome" in properties:
        word = "UNKNOWN" if properties["outcome"] == "unknown" else report.outcome.upper()
    elif report.when == "setup" and not report.passed and "device" in properties:
        word = "SKIPPED" if report.skipped else "ERROR"
    else:
        return None
    category = "error" if word == "ERROR" else report.outcome
    took = f" {properties['duration_s']:.1f} s" if "duration_s" in properties else ""
    has_own_line = config.get_verbosity() == 0 and not hasattr(report, "node")  # pytest-xdist writes dots only
    letter = f"{properties.get('device', 'recheck')} {word.lower()}{took}  " if has_own_line else _LETTERS[word]
    return category, letter, word if _SUMMING_UP in config.stash else word + took


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    config.stash[_SUMMING_UP] = True  # tools look for "FAILED path" in the lines that follow: no time between
    results = [
        {"test": report.nodeid, "result": category, **dict(report.user_properties)}
        for category in ("passed", "failed", "error", "skipped")
        for report in terminalreporter.stats.get(category, ())
        if isinstance(report, pytest.TestReport) and "device" in dict(report.user_properties)
    ]
    if not results:
        return
    terminalreporter.write_line(_header(config))
    for result in results:
        if result["result"] == "passed" and "doubt" in result:
            said = f"passed, but its end was compared with nothing: {result['doubt']}"
            terminalreporter.write_line(f"chaos: {result['test']} {said}", yellow=True)
    if session_dir(config).is_dir():  # else nothing ran: all were skipped
        from harness.kept_runs import REPORT_JSON, prune
        from harness.report.page import write_session_report
        from harness.report.stored import write_report

        try:
            nights = nights_of(results)
            about = _about(config) | ({"chaos": nights} if nights else {})
            path = write_report(session_dir(config) / REPORT_JSON, about, results)
            terminalreporter.write_line(f"chaos: runs and {REPORT_JSON} are in {as_typed(path.parent, config)}")
            page = write_session_report(session_dir(config))
            terminalreporter.write_line(f"chaos: open {as_typed(page, config)}")
        except RecordError as error:  # a full disk takes the reports, not the session's result
            terminalreporter.write_line(f"chaos: no report: {error}", red=True)
        prune(store_dir(config))


def _about(config: pytest.Config) -> dict[str, Any]:
    from harness.plan import made_with

    seed, launcher, made = config.getoption("chaos_seed"), config.getoption("launcher"), made_with(config.rootpath)
    return {
        "seed": "each scenario's own" if seed is None else seed,
        "launcher": launcher or "each scenario's own",
        "store": str(as_typed(store_dir(config), config)),
        "commit": made["commit"][:12] + (" (dirty)" if made["dirty"] == "true" else ""),
        **({"disarmed": True} if config.getoption("disarm") else {}),
    }


def _header(config: pytest.Config) -> str:
    return "chaos: " + ", ".join(f"{name} {value}" for name, value in _about(config).items())
