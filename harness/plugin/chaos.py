"""Chaos as tests: a night is one test, or with pytest-xdist one test for each worker, each a shard of the same seed.

Its outcome is the night's. With pytest's exit code goes ``2`` where nothing is broken and nothing is proven either.
"""

from __future__ import annotations

import faulthandler
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.errors import HarnessError
from harness.plugin.options import is_chaos, session_dir, store_dir
from harness.plugin.session import close, end_with_controller

if TYPE_CHECKING:
    from harness.chaos.night import Order

UNKNOWN = 2
GRACE_S = 300.0  # beyond a night's minutes: its last runs, and what it makes smaller


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    if not is_chaos(config):
        return
    num_parts = getattr(config, "workerinput", {}).get("workercount", 1)
    items[:] = [
        NightItem.from_parent(session, name=f"chaos-{part}-of-{num_parts}", part=part, num_parts=num_parts)
        for part in range(1, num_parts + 1)
    ]


class NightItem(pytest.Item):
    """A shard of a night."""

    def __init__(self, *, part: int, num_parts: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.part, self.num_parts = part, num_parts
        self.add_marker("chaos")
        self.user_properties.append(("device", "cpu"))
        if self.config.pluginmanager.hasplugin("timeout"):
            minutes = self.config.getoption("chaos_minutes")
            self.add_marker(pytest.mark.timeout(0 if minutes is None else 60 * minutes + GRACE_S))

    def setup(self) -> None:
        from harness.chaos.command import header, write_night
        from harness.chaos.night import run_night
        from harness.kept_runs import make_session_dir

        end_with_controller(self.config)
        try:
            order = self._order()
            arguments = {"arguments": list(self.config.invocation_params.args)}
            make_session_dir(store_dir(self.config), session_dir(self.config).name, arguments)
            faulthandler.cancel_dump_traceback_later()  # pytest's own, meant for tests: a night is longer
            with _uncaptured(self.config):
                print(f"\n{header(order)}", file=sys.stderr, flush=True)
                self.night = run_night(order, sys.stderr)
            self.report = write_night(self.night)
        except HarnessError as error:
            pytest.fail(f"{type(error).__name__}: {error}", pytrace=False)
        self.user_properties += [
            ("outcome", self.night.outcome),
            ("duration_s", round(self.night.duration_s, 3)),
            ("night", str(self.report)),
        ]

    def runtest(self) -> None:
        from harness.chaos.command import summary, where_to_look

        text = "\n".join([*summary(self.night), *where_to_look(self.report)])
        if self.night.outcome != "passed":
            pytest.fail(f"{self.night.outcome.upper()}\n{text}", pytrace=False)
        with _uncaptured(self.config):
            print(text, file=sys.stderr, flush=True)

    def _order(self) -> Order:
        from dataclasses import replace

        from harness.chaos.command import make_order

        option = self.config.getoption
        num_runs = option("chaos_runs")
        order = make_order(
            seed=option("chaos_seed"),
            num_runs=num_runs,
            minutes=option("chaos_minutes"),
            shard=option("chaos_shard"),
            store_dir=store_dir(self.config),
            runs_dir=session_dir(self.config) / self.name,
            out_dir=None if option("chaos_out") is None else Path(option("chaos_out")),
        )
        # A shard of a shard: of the plans that are this session's, every num_parts-th.
        shard, num_shards = order.shard + order.num_shards * (self.part - 1), order.num_shards * self.num_parts
        return replace(
            order,
            shard=shard,
            num_shards=num_shards,
            num_runs=None if num_runs is None else len(range(shard - 1, num_runs, num_shards)),
            jobs=max(1, order.jobs // self.num_parts),
        )

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


@contextmanager
def _uncaptured(config: pytest.Config) -> Iterator[None]:
    """What is printed is seen while it happens, in a worker of pytest-xdist too, whose stderr is the controller's."""
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is None:
        yield
        return
    with capture.global_and_fixture_disabled():
        yield


def nights_of(reports: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the report.json of each shard says of its night.

    Args:
        reports: the properties of the session's tests.
    """
    paths = [Path(report["night"]) for report in reports if "night" in report]
    return [night for path in paths for night in json.loads(path.read_text())["chaos"]]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """The session is closed; pytest's exit code is 2 where no night failed and one proves nothing."""
    close(session)
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    if not is_chaos(session.config) or reporter is None:
        return
    told = [dict(report.user_properties) for report in reporter.stats.get("failed", ())]
    if told and all(properties.get("outcome") == "unknown" for properties in told):
        session.exitstatus = UNKNOWN
