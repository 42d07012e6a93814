"""The pytest plugin: scenario files become tests. Nothing outside this folder imports pytest.

    options     the command line, the markers, the directory of this session's runs
    collect     from files to items: which .toml is a scenario, which bound each item gets
    items       the tests: a run as set-up, its judgement as the test
    chaos       plans drawn from a seed: a test for each shard of a night
    session     what runs plans in this process: opened late, closed with pytest
    terminal    one line a scenario, report.json

It is loaded in every pytest session of an environment that has this package, so it imports nothing heavy: the rest of
the harness comes in with the first scenario file, and torch never.
"""

from harness.plugin.chaos import pytest_collection_modifyitems, pytest_sessionfinish
from harness.plugin.collect import pytest_collect_file, pytest_ignore_collect
from harness.plugin.options import pytest_addoption, pytest_configure, pytest_configure_node
from harness.plugin.session import pytest_addhooks, pytest_chaos_make_session
from harness.plugin.terminal import (
    pytest_report_collectionfinish,
    pytest_report_teststatus,
    pytest_terminal_summary,
)

__all__ = [
    "pytest_addhooks",
    "pytest_addoption",
    "pytest_chaos_make_session",
    "pytest_collect_file",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_configure_node",
    "pytest_ignore_collect",
    "pytest_report_collectionfinish",
    "pytest_report_teststatus",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
]
