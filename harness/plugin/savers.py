"""The test of a save function: every crash state of it, judged against what its scenario expects."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.errors import HarnessError, UnavailableError
from harness.plugin.options import as_typed, session_dir, store_dir

if TYPE_CHECKING:
    from harness.crashstates.examine import Examination
    from harness.scenario import SaverScenario


class SaverItem(pytest.Item):
    """One save function. Trouble of the harness is an ERROR; without strace it is SKIPPED."""

    found: Examination

    def __init__(self, *, scenario: SaverScenario, **kwargs: Any) -> None:
        super().__init__(name="cpu", **kwargs)
        self.scenario = scenario
        self.user_properties.append(("device", "cpu"))

    def setup(self) -> None:
        from harness.crashstates.command import examine_scenario

        started_s = time.monotonic()
        try:
            self.found = examine_scenario(self.scenario, disarm=self.config.getoption("disarm"))
        except UnavailableError as error:
            pytest.skip(str(error))
        except HarnessError as error:
            pytest.fail(f"{type(error).__name__}: {error}", pytrace=False)
        self.user_properties.append(("duration_s", round(time.monotonic() - started_s, 3)))
        self.user_properties.append(("outcome", self._judged()[0]))

    def runtest(self) -> None:
        from harness.crashstates.archive import write_archives
        from harness.crashstates.wording import report
        from harness.kept_runs import make_session_dir

        outcome, problems = self._judged()
        if outcome == "passed":
            return
        runs_dir = session_dir(self.config)
        make_session_dir(store_dir(self.config), runs_dir.name, {"arguments": list(self.config.invocation_params.args)})
        archives = write_archives(self.found, runs_dir / f"{self.path.stem}-states")
        lines = [self.scenario.title] if self.scenario.title else []
        lines += [f"{'UNKNOWN' if outcome == 'unknown' else 'FAILED'}: {problem}" for problem in problems]
        lines += [report(self.found)]
        lines += [f"  kept {as_typed(path, self.config)}" for path in archives]
        lines += [f"  again: pytest {as_typed(self.path, self.config)}"]
        pytest.fail("\n".join(lines), pytrace=False)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"{self.path.stem} [{self.name}]"

    def _judged(self) -> tuple[str, list[str]]:
        from harness.crashstates.expect import weigh

        return weigh(self.found, self.scenario.expect)
