"""From files to items: which file is a scenario, and how long pytest-timeout lets an item run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.errors import ScenarioError
from harness.plugin.items import ScenarioItem, StoredRunItem
from harness.plugin.savers import SaverItem
from harness.wire import PLAN_JSON

if TYPE_CHECKING:
    from harness.plan import Device
    from harness.scenario import Scenario

# Files of other tools: never opened, also where they hold a table of the same name.
FOREIGN_TOML = frozenset({"pyproject.toml", "tox.toml", "ruff.toml", "pytest.toml", "Cargo.toml", "poetry.toml"})
# Every scenario has a `workload` or a `saver` above its first table, and an [expect]. One of them makes a file a
# scenario, so that a file that lacks the other is reported and not silently left out.
LOOKS_LIKE_SCENARIO = re.compile(
    rb"\A(?:[ \t\r]*(?:[^\[\s][^\n]*)?\n)*?[ \t]*(?:workload|saver)[ \t]*="  # lines above it start no table
    rb"|^[ \t]*\[[ \t]*expect[ \t]*\]|^[ \t]*expect[ \t]*[.=]",
    re.MULTILINE,
)
SETS_SAVER = re.compile(rb"\A(?:[ \t\r]*(?:[^\[\s][^\n]*)?\n)*?[ \t]*saver[ \t]*=")
BASELINE_RUNS = 2  # a plan's fault-free twin runs twice at most, each under the same deadline
JUDGING_S = 30.0  # starting the warm parent, ending what is left, judging the records


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if config.getoption("recheck") and (collection_path.parent / PLAN_JSON).is_file() and collection_path.is_dir():
        return True  # the inside of a run directory: checkpoints may be many files
    return None


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if parent.config.getoption("recheck"):
        # Also a run that was broken off before its outcome was written: it is an error, not left out in silence.
        is_run = file_path.name == PLAN_JSON
        return StoredRunFile.from_parent(parent, path=file_path) if is_run else None
    if file_path.suffix == ".toml" and (parent.session.isinitpath(file_path) or is_scenario(file_path)):
        kind = SaverFile if SETS_SAVER.search(file_path.read_bytes()) else ScenarioFile
        return kind.from_parent(parent, path=file_path)
    return None


def is_scenario(path: Path) -> bool:
    """Whether a .toml file found in a directory is a scenario; one named on the command line always is.

    It is if it sets ``workload`` or ``saver`` above its first table, or has an ``[expect]``. Files of well-known tools
    and dot-files are not even opened.
    """
    if path.name in FOREIGN_TOML or path.name.startswith("."):
        return False
    return LOOKS_LIKE_SCENARIO.search(path.read_bytes()) is not None


class ScenarioFile(pytest.File):
    def collect(self) -> Iterator[ScenarioItem]:
        from harness.scenario import load_scenario

        try:
            scenario = load_scenario(self.path)
        except ScenarioError as error:
            raise _refused(error, self.config) from None
        for device in scenario.devices:
            item = ScenarioItem.from_parent(self, scenario=scenario, device=device)
            if (bound_s := item_timeout_s(scenario, device, self.config)) is not None:
                item.add_marker(pytest.mark.timeout(bound_s))
            yield item


class SaverFile(pytest.File):
    def collect(self) -> Iterator[SaverItem]:
        from harness.scenario import load_saver_scenario

        try:
            scenario = load_saver_scenario(self.path)
        except ScenarioError as error:
            raise _refused(error, self.config) from None
        item = SaverItem.from_parent(self, scenario=scenario)
        if self.config.pluginmanager.hasplugin("timeout"):
            item.add_marker(pytest.mark.timeout(scenario.deadline_s))
        yield item


def _refused(error: ScenarioError, config: pytest.Config) -> pytest.Collector.CollectError:
    """What is wrong with a file, and how to run the others all the same: pytest runs none after such an error."""
    lines = [*error.problems]
    if not config.getoption("continue_on_collection_errors") and not config.getoption("collectonly"):
        lines.append("no test is run while a file is refused: mend it, or give --continue-on-collection-errors as well")
    return pytest.Collector.CollectError("\n".join(lines))


class StoredRunFile(pytest.File):
    def collect(self) -> Iterator[StoredRunItem]:
        yield StoredRunItem.from_parent(self, name="recheck")


def item_timeout_s(scenario: Scenario, device: Device, config: pytest.Config) -> float | None:
    """What pytest-timeout must allow for one item, above the scenario's own bounds; None: the user's bound stands.

    Raises:
        pytest.Collector.CollectError: the user's bound is too small; names all three.
    """
    if not config.pluginmanager.hasplugin("timeout"):
        return None
    needed_s = scenario.deadline_s * (1 + BASELINE_RUNS) + JUDGING_S
    if device == "gpu":
        from harness.run import LEASE_TIMEOUT_S

        needed_s += LEASE_TIMEOUT_S
    origin, users = "--timeout", config.getoption("timeout")
    if users is None:
        origin, users = "PYTEST_TIMEOUT", os.environ.get("PYTEST_TIMEOUT")
    if users is None:
        return needed_s  # above that of an ini file, which is meant for tests of another kind
    if 0 < float(users) < needed_s:  # 0 turns pytest-timeout off
        raise pytest.Collector.CollectError(
            f"{scenario.file}: the bounds must nest: collective_timeout_s = {scenario.collective_timeout_s:g} < "
            f"deadline_s = {scenario.deadline_s:g} < pytest-timeout, but {origin}={float(users):g} is less than "
            f"{needed_s:g} (the run, {BASELINE_RUNS} fault-free ones, and what surrounds them); "
            f"raise {origin}, leave it out, or lower deadline_s"
        )
    return None
